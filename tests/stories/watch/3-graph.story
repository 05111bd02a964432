-- Patterns over the graph: absence, paths, edges as elements, references.

.ontology people
    node Person { name: String }
    edge friend(a: Person, b: Person) [symmetric, no_self]
    edge reports_to(who: Person, boss: Person)

.ontology tasks
    node Task { title: String, status: String = "todo", n: Int = 0 }

=== example.absence, watch.dependencies | tasks without an assignee
.scope pattern
.define
    node Task { title: String, done: Bool = false }
    node Person { name: String }
    edge assigned_to(task: Task, person: Person)
>> SPAWN t: Task { title = "t" }
   SPAWN ann: Person { name = "Ann" }
   SPAWN bob: Person { name = "Bob" }
> free = WATCH t: Task WHERE NOT EXISTS(p: Person, assigned_to(t, p)) AND NOT t.done RETURN t.title
.events free
initial
  "t"
> LINK assigned_to(#t, #ann)
.events free
removed "t"
> LINK assigned_to(#t, #bob)
> UNLINK assigned_to(#t, #ann)
.events free
(nothing)
> KILL #bob
.events free
added "t"
> SET #t.done = true
.events free
removed "t"

=== example.absence | a task is blocked until its last blocker is done
.scope pattern
.define
    node Task { title: String, done: Bool = false }
    edge blocks(first: Task, second: Task)
>> SPAWN a: Task { title = "a" }
   SPAWN b: Task { title = "b" }
   SPAWN c: Task { title = "c" }
   LINK blocks(#a, #c)
   LINK blocks(#b, #c)
> ready = WATCH t: Task WHERE NOT t.done AND NOT EXISTS(x: Task, blocks(x, t) WHERE NOT x.done) RETURN t.title
.events ready
initial
  "a"
  "b"
> SET #a.done = true
.events ready
removed "a"
> SET #b.done = true
.events ready
removed "b"
added "c"

=== example.friends | friends of friends who are not friends
.scope pattern
.use people
>> SPAWN ann: Person { name = "Ann" }
   SPAWN bob: Person { name = "Bob" }
   SPAWN carl: Person { name = "Carl" }
   LINK friend(#ann, #bob)
> maybe = WATCH friend(#ann, f), friend(f, x) WHERE x != #ann AND NOT EXISTS(friend(#ann, x)) RETURN f.name, x.name
.events maybe
initial (nothing)
> LINK friend(#carl, #bob)
.events maybe
added "Bob" | "Carl"
> LINK friend(#carl, #ann)
.events maybe
removed "Bob" | "Carl"

=== example.orgchart | a transitive hierarchy of any depth
.scope pattern
.use people
>> SPAWN boss: Person { name = "Boss" }
   SPAWN ann: Person { name = "Ann" }
   SPAWN bob: Person { name = "Bob" }
   SPAWN carl: Person { name = "Carl" }
   LINK reports_to(#ann, #boss)
   LINK reports_to(#carl, #bob)
> below = WATCH p: Person, reports_to+(p, #boss) RETURN p.name
.events below
initial
  "Ann"
> LINK reports_to(#bob, #ann)
.events below
added "Bob"
added "Carl"
> LINK reports_to(#carl, #ann)
> UNLINK reports_to(#carl, #bob)
.events below
(nothing)
> UNLINK reports_to(#ann, #boss)
.events below
removed "Ann"
removed "Bob"
removed "Carl"

=== pattern.paths | * includes the start, and depths are bounded
.scope pattern
.use people
>> SPAWN boss: Person { name = "Boss" }
   SPAWN ann: Person { name = "Ann" }
   SPAWN bob: Person { name = "Bob" }
> team = WATCH p: Person, reports_to*(p, #boss) [depth: 1] RETURN p.name
.events team
initial
  "Boss"
> LINK reports_to(#ann, #boss)
> LINK reports_to(#bob, #ann)
.events team
added "Ann"

=== watch.edge-variables, pattern.edges | an edge pattern binds variables for its targets
.scope pattern
.define
    node Event { name: String }
    edge causes(cause: Event, effect: Event) { weight: Int = 1 }
>> SPAWN a: Event { name = "rain" }
   SPAWN b: Event { name = "flood" }
> why = WATCH causes(e1, e2) AS c [mode: watch] RETURN e1.name, e2.name, c.weight
.events why
initial (nothing)
> LINK causes(#a, #b) AS c
> SET #c.weight = 3
> SET #a.name = "storm"
> UNLINK #c
.events why
added "rain" | "flood" | 1
changed "rain" | "flood" | 1 -> "rain" | "flood" | 3
changed "rain" | "flood" | 3 -> "storm" | "flood" | 3
removed "storm" | "flood" | 3

=== pattern.edges | a unary edge
.scope pattern
.define
    node Job { name: String }
    edge pending_job(job: Job)
> SPAWN j: Job { name = "j" }
> queue = WATCH j: Job, pending_job(j) RETURN j.name
.events queue
initial (nothing)
> LINK pending_job(#j)
.events queue
added "j"
> UNLINK pending_job(#j)
.events queue
removed "j"

=== pattern.higher | an edge about an edge
.scope pattern
.define
    node Person { name: String }
    edge knows(a: Person, b: Person)
    edge doubted(what: edge<knows>, by: Person)
>> SPAWN a: Person { name = "A" }
   SPAWN b: Person { name = "B" }
   LINK knows(#a, #b) AS k
> doubts = WATCH knows(x, y) AS k, doubted(k, p) RETURN x.name, y.name, p.name
.events doubts
initial (nothing)
> LINK doubted(#k, #b)
.events doubts
added "A" | "B" | "B"
> UNLINK #k
.events doubts
removed "A" | "B" | "B"

=== pattern.reference | attributes of a referenced node are followed
.scope pattern
.define
    node User { name: String }
    node Document { title: String, owner: User? }
>> SPAWN ann: User { name = "Ann" }
   SPAWN bob: User { name = "Bob" }
   SPAWN d: Document { title = "plan", owner = #ann }
> owned = WATCH d: Document WHERE d.owner.name != "Bob" RETURN d.title, d.owner.name
.events owned
initial
  "plan" | "Ann"
> SET #ann.name = "Anna"
.events owned
changed "plan" | "Ann" -> "plan" | "Anna"
> SET #d.owner = #bob
.events owned
removed "plan" | "Anna"
> SET #bob.name = "Robert"
.events owned
added "plan" | "Robert"

=== pattern.join | a join by value, without any edge
.scope pattern
.define
    node Order { number: Int, customer: String }
    node Payment { reference: Int, amount: Int }
> paid = WATCH o: Order, p: Payment WHERE p.reference = o.number RETURN o.customer, p.amount
.events paid
initial (nothing)
> SPAWN p: Payment { reference = 7, amount = 50 }
> SPAWN o: Order { number = 7, customer = "Ann" }
.events paid
added "Ann" | 50
> SET #p.reference = 8
.events paid
removed "Ann" | 50

=== pattern.ids | one element by its id
.scope node
.define node Task { title: String, n: Int = 0 }
>> SPAWN a: Task { title = "a" }
   SPAWN b: Task { title = "b" }
> one = WATCH t: Task WHERE t = #a RETURN t.title, t.n
.events one
initial
  "a" | 0
> MATCH t: Task SET t.n = 1
.events one
changed "a" | 0 -> "a" | 1
> KILL #a
.events one
removed "a" | 1

=== pattern.ids, watch.parameters | targets as parameters
.scope pattern
.define
    node Task { title: String }
    node Project { name: String }
    edge belongs_to(task: Task, project: Project)
>> SPAWN p: Project { name = "p" }
   SPAWN q: Project { name = "q" }
   SPAWN t: Task { title = "t" }
.params {"project": "#p"}
> of_p = WATCH t: Task, belongs_to(t, $project) RETURN t.title
.params {"project": "#q"}
> of_q = WATCH t: Task, belongs_to(t, $project) RETURN t.title
.events of_p, of_q
initial (nothing)
> LINK belongs_to(#t, #p)
.events of_p
added "t"
.events of_q
(nothing)

=== example.chain | a change of the last element of a chain
.scope pattern
.define
    node A { n: Int } node B { n: Int } node C { n: Int }
    edge ab(a: A, b: B)
    edge bc(b: B, c: C)
>> SPAWN a: A { n = 1 }
   SPAWN b: B { n = 2 }
   SPAWN c: C { n = 3 }
   LINK ab(#a, #b)
   LINK bc(#b, #c)
> chain = WATCH ab(a, b), bc(b, c) WHERE c.n > a.n RETURN a.n, c.n
> counted = WATCH ab(a, b), bc(b, c) WHERE c.n > a.n RETURN a.n, COUNT(*), SUM(c.n)
.events chain
initial
  1 | 3
.events counted
initial
  1 | 1 | 3
> SET #c.n = 4
.events chain
changed 1 | 3 -> 1 | 4
.events counted
changed 1 | 1 | 3 -> 1 | 1 | 4
> SET #c.n = 0
.events chain
removed 1 | 4
.events counted
removed 1 | 1 | 4

=== pattern.edges | edges by their type
.scope pattern
.use tasks
.define
    node P { name: String }
    edge at(t: Task, p: P) { k: Int = 0 }
>> SPAWN a: Task { title = "a" } SPAWN p: P { name = "p" }
> e = WATCH e: at RETURN e.k
> LINK at(#a, #p) { k = 3 } AS x
> SET #x.k = 4
> KILL #p
.events e
initial (nothing)
added 3
changed 3 -> 4
removed 4

=== pattern.types, example.define | `any` includes types that are defined later
.scope node
.use tasks
> all = WATCH n: any [initial: none] RETURN n.id
> SPAWN a: Task { title = "a" }
.define node New { x: Int = 1 }
> SPAWN b: New
.events all
added #a
added #b
