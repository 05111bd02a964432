-- Live queries of dashboards, monitors and derived views.

.ontology board
    node Project { name: String }
    node Task {
      title: String [required],
      status: String = "todo",
      priority: Int = 0,
      done_at: Timestamp?
    }
    edge belongs_to(task: Task, project: Project)

.ontology tasks
    node Task { title: String, status: String = "todo", n: Int = 0 }

=== watch.events, watch.changed, watch.snapshot, watch.position | a watch sends added, changed and removed
.scope node
.use board
> SPAWN old: Task { title = "old" }
> board = WATCH t: Task RETURN t.title, t.status
.events board
initial (position 1)
  "old" | "todo"
> SPAWN new: Task { title = "new" }
.events board
added "new" | "todo" (position 2)
> SET #new.status = "doing"
> KILL #old
.events board
changed "new" | "todo" -> "new" | "doing" (position 3)
removed "old" | "todo" (position 4)
.events board
(nothing)

=== watch.condition, watch.dependencies | a match is added and removed when the condition changes
.scope node
.use board
> done = WATCH t: Task WHERE t.status = "done" RETURN t
.events done
initial (nothing)
> SPAWN a: Task { title = "a" }
.events done
(nothing)
> SET #a.status = "done"
.events done
added Task #a {title: "a", status: "done", priority: 0}
> SET #a.priority = 3
.events done
changed Task #a {title: "a", status: "done", priority: 0} -> Task #a {title: "a", status: "done", priority: 3}
> SET #a.status = "todo"
.events done
removed Task #a {title: "a", status: "done", priority: 3}

=== watch.dashboard | the dashboard of one project among many
.scope pattern
.use board
>> SPAWN p: Project { name = "house" }
   SPAWN q: Project { name = "boat" }
   SPAWN a: Task { title = "walls" }
   LINK belongs_to(#a, #p)
> board = WATCH t: Task, belongs_to(t, #p)
    [mode: watch, delivery: reliable]
  RETURN t.id, t.title, t.status, t.priority
.events board
initial
  #a | "walls" | "todo" | 0
> SPAWN b: Task { title = "mast" }
> LINK belongs_to(#b, #q)
.events board
(nothing)
> LINK belongs_to(#b, #p)
> SET #b.title = "beam"
.events board
added #b | "mast" | "todo" | 0
changed #b | "mast" | "todo" | 0 -> #b | "beam" | "todo" | 0
> UNLINK belongs_to(#a, #p)
.events board
removed #a | "walls" | "todo" | 0
> KILL #b
.events board
removed #b | "beam" | "todo" | 0

=== watch.changed | a change of an attribute that is not returned sends no event
.scope node
.use board
> SPAWN a: Task { title = "a" }
> titles = WATCH t: Task WHERE t.priority < 5 RETURN t.title
.events titles
initial
  "a"
> SET #a.status = "doing"
> SET #a.priority = 3
.events titles
(nothing)
> SET #a.priority = 7
.events titles
removed "a"

=== watch.changed | setting an equal value sends no event
.scope node
.use board
> SPAWN a: Task { title = "a" }
> board = WATCH t: Task RETURN t.title [initial: none]
! E1001
> board = WATCH t: Task [initial: none] RETURN t.title
> SET #a.title = "a"
.events board
(nothing)

=== watch.transactions, 4.4 | a transaction sends its net effect only
.scope node
.use board
> done = WATCH t: Task WHERE t.status = "done" [initial: none] RETURN t.title, t.status
> all = WATCH t: Task [initial: none] RETURN t.title, t.status
> BEGIN
> SPAWN t: Task { title = "x", status = "todo" }
.events done, all
(nothing)
> SET #t.status = "done"
.events done, all
(nothing)
> COMMIT
.events done, all
added "x" | "done"
> BEGIN
> SET #t.title = "y"
> SET #t.title = "z"
> COMMIT
.events done, all
changed "x" | "done" -> "z" | "done"

=== 4.4 | an element created and deleted in one transaction sends no event
.scope node
.use board
> all = WATCH t: Task [initial: none] RETURN t.title
> BEGIN
> SPAWN t: Task { title = "x" }
> KILL #t
> COMMIT
.events all
(nothing)

=== 4.4 | leaving and reentering the condition in one transaction sends at most changed
.scope node
.use board
> SPAWN t: Task { title = "x" }
> todo = WATCH t: Task WHERE t.status = "todo" [initial: none] RETURN t.title
> BEGIN
> SET #t.status = "doing"
> SET #t.status = "todo"
> COMMIT
.events todo
(nothing)
> BEGIN
> SET #t { status = "doing", title = "y" }
> SET #t.status = "todo"
> COMMIT
.events todo
changed "x" -> "y"

=== 4.4 | a rolled back or rejected transaction sends no event
.scope node
.use board
.define constraint no_zero: t: Task => t.priority < 10
> all = WATCH t: Task [initial: none] RETURN t.title
> BEGIN
> SPAWN t: Task { title = "x" }
> ROLLBACK
> SPAWN t: Task { title = "y", priority = 11 }
! E3001
> BEGIN
> SPAWN t: Task { title = "a" }
> SAVEPOINT s
> SPAWN t: Task { title = "b" }
> ROLLBACK TO s
> COMMIT
.events all
added "a"

=== watch.snapshot, watch.initial | initial: none sends new matches only
.scope node
.use board
> SPAWN t: Task { title = "old" }
> new = WATCH t: Task [initial: none] RETURN t.title
.events new
(nothing)
> KILL #t
> SPAWN u: Task { title = "new" }
.events new
removed "old" (position 1)
added "new" (position 2)

=== watch.mode | every watch receives every event, and the graph is unchanged
.scope node
.use board
> SPAWN t: Task { title = "x" }
ann> a = WATCH t: Task RETURN t.title
bob> b = WATCH t: Task RETURN t.title
carl> c = WATCH t: Task [mode: watch, group: "workers"] RETURN t.title
.events a, b, c
initial
  "x"
> SET #t.title = "y"
.events a, b, c
changed "x" -> "y"
> MATCH t: Task RETURN t.title
"y"

=== example.threshold | an alarm is sent once each time a value crosses its threshold
.scope node
.define node Sensor { name: String, degrees: Float }
> SPAWN s: Sensor { name = "boiler", degrees = 60.0 }
.params {"limit": 90}
> hot = WATCH s: Sensor WHERE s.degrees > $limit RETURN s.name
.params {"limit": 95}
> hotter = WATCH s: Sensor WHERE s.degrees > $limit RETURN s.name
.events hot, hotter
initial (nothing)
> SET #s.degrees = 91.5
.events hot
added "boiler"
.events hotter
(nothing)
> SET #s.degrees = 99.0
.events hot
(nothing)
.events hotter
added "boiler"
> SET #s.degrees = 90.0
.events hot, hotter
removed "boiler"

=== example.tags | one watch for several tags
.scope pattern
.define
    node Note { text: String }
    node Tag { name: String [unique] }
    edge tagged(note: Note, tag: Tag)
>> SPAWN red: Tag { name = "red" }
   SPAWN blue: Tag { name = "blue" }
   SPAWN grey: Tag { name = "grey" }
   SPAWN n: Note { text = "hello" }
> bright = WATCH n: Note, tagged(n, g) WHERE g.name IN ["red", "blue"] RETURN n.text, g.name
> any = WATCH n: Note WHERE EXISTS(g: Tag, tagged(n, g) WHERE g.name = "red" OR g.name = "blue") RETURN n.text
.events bright, any
initial (nothing)
> LINK tagged(#n, #grey)
.events bright, any
(nothing)
> LINK tagged(#n, #red)
.events bright
added "hello" | "red"
.events any
added "hello"
> LINK tagged(#n, #blue)
.events bright
added "hello" | "blue"
.events any
(nothing)
> UNLINK tagged(#n, #red)
.events bright
removed "hello" | "red"
.events any
(nothing)
> UNLINK tagged(#n, #blue)
.events bright
removed "hello" | "blue"
.events any
removed "hello"

=== pattern.types, example.union | a union of types and subtypes sends each element with its own type
.scope node
.define
    abstract node Doc { title: String }
    node Letter: Doc
    node Invoice: Doc { total: Int = 0 }
    node Photo { title: String }
> papers = WATCH d: Doc RETURN d
> seen = WATCH d: Letter | Photo RETURN d.title
.events papers, seen
initial (nothing)
>> SPAWN l: Letter { title = "l" }
   SPAWN i: Invoice { title = "i", total = 5 }
   SPAWN p: Photo { title = "p" }
.events papers
added Letter #l {title: "l"}
added Invoice #i {title: "i", total: 5}
.events seen
added "l"
added "p"

=== watch.audit | removed carries the last values of a deleted element
.scope node
.use board
> SPAWN a: Task { title = "secret plan" }
> SPAWN b: Task { title = "other" }
> gone = WATCH t: Task [initial: none, ordering: causal] RETURN t.id, t.title
> SET #a.title = "plan"
> KILL #a
> MATCH t: Task KILL t
.events gone ordered
changed #a | "secret plan" -> #a | "plan"
removed #a | "plan"
removed #b | "other"

=== 4.4 | a cascade of deletions is sent as one commit
.scope pattern
.define
    node Folder { name: String }
    node File { name: String }
    edge holds(folder: Folder, file: File) [on_kill_source: cascade]
>> SPAWN f: Folder { name = "f" }
   LINK holds(#f, SPAWN File { name = "a" } AS a)
   LINK holds(#f, SPAWN File { name = "b" } AS b)
> files = WATCH x: File [initial: none] RETURN x.name
> places = WATCH f: Folder, x: File, holds(f, x) [initial: none] RETURN f.name, x.name
> lonely = WATCH x: File WHERE NOT EXISTS(f: Folder, holds(f, x)) [initial: none] RETURN x.name
> KILL #f
.events files
removed "a" (tick 3)
removed "b" (tick 3)
.events places
removed "f" | "a"
removed "f" | "b"
.events lonely
(nothing)

=== watch.rules, watch.causal-order | effects of rules are part of the commit's events
.scope node
.use board
.define rule stamp: t: Task WHERE t.status = "done" AND t.done_at IS NULL => SET t.done_at = now()
> SPAWN t: Task { title = "x" }
> all = WATCH t: Task [initial: none] RETURN t.title, t.status, t.done_at
.advance 5s
> SET #t.status = "done"
.events all
changed "x" | "todo" | null -> "x" | "done" | @2024-01-01T00:00:05.000Z

=== watch.rules | an element created by a rule is added
.scope pattern
.define
    node Order { total: Int }
    node Invoice { total: Int }
    edge bills(invoice: Invoice, order: Order)
    rule invoice: o: Order WHERE NOT EXISTS(i: Invoice, bills(i, o)) => SPAWN i: Invoice { total = o.total }, LINK bills(i, o)
> open = WATCH o: Order WHERE NOT EXISTS(i: Invoice, bills(i, o)) RETURN o.total
> billed = WATCH i: Invoice, o: Order, bills(i, o) RETURN o.total, i.total
.events open, billed
initial (nothing)
> SPAWN o: Order { total = 7 }
.events open
(nothing)
.events billed
added 7 | 7

=== watch.parameters, watch.captured-actor | one statement with a different constant for each user
.scope node
.use board
.params {"p": 1}
> low = WATCH t: Task WHERE t.priority = $p RETURN t.title
.params {"p": 9}
> high = WATCH t: Task WHERE t.priority = $p RETURN t.title
.params {"p": 9}
> too = WATCH t: Task WHERE t.priority = $p RETURN t.title
.events low, high, too
initial (nothing)
> SPAWN t: Task { title = "x", priority = 1 }
> SET #t.priority = 9
.events low
added "x"
removed "x"
.events high, too
added "x"

=== watch.identity | parallel unnamed edges are one match
.scope pattern
.use board
>> SPAWN p: Project { name = "house" }
   SPAWN t: Task { title = "walls" }
> both = WATCH t: Task, p: Project, belongs_to(t, p) [initial: none] RETURN t.title
> each = WATCH t: Task, p: Project, belongs_to(t, p) AS e [initial: none] RETURN t.title
> LINK belongs_to(#t, #p) AS one
> LINK belongs_to(#t, #p) AS two
.events both
added "walls"
.events each
added "walls"
added "walls"
> UNLINK #one
.events both
(nothing)
.events each
removed "walls"
> UNLINK #two
.events both, each
removed "walls"

=== example.define | a watch continues when the ontology is extended
.scope node
.use board
> all = WATCH t: Task [initial: none] RETURN t
.define
    node Task { title: String [required], status: String = "todo", priority: Int = 0, done_at: Timestamp?, owner: String? }
    node Chore: Task
> SPAWN t: Task { title = "x", owner = "ann" }
> SPAWN c: Chore { title = "sweep" }
.events all
added Task #t {title: "x", status: "todo", priority: 0, owner: "ann"}
added Chore #c {title: "sweep", status: "todo", priority: 0}

=== watch.time-conditions | a time condition is evaluated at the next commit or tick
.scope node
.define node Bill { name: String, due: Timestamp }
> SPAWN b: Bill { name = "rent", due = @2024-01-01T00:01:00Z }
> late = WATCH b: Bill WHERE b.due < now() RETURN b.name
.events late
initial (nothing)
.advance 2m
.events late
(nothing)
> SPAWN c: Bill { name = "gas", due = @2024-02-01 }
.events late
added "rent"
.advance 60d
> TICK
.events late
added "gas"

=== watch.parameters, watch.filter | a list as a parameter, and one in a filter
.scope node
.use tasks
.params {"names": ["a", "b"]}
> w = WATCH t: Task WHERE t.title IN $names [filter: t.title IN ["b", "c"]] RETURN t.title
>> SPAWN a: Task { title = "a" } SPAWN b: Task { title = "b" } SPAWN c: Task { title = "c" }
.events w
initial (nothing)
added "b"

=== watch.events | every kind of value in a row
.scope node
.use tasks
> w = WATCH t: Task [initial: none] RETURN *
> SPAWN a: Task { title = "a" }
.events w
added Task #a {title: "a", status: "todo", n: 0}

=== watch.dependencies, watch.cancel | a condition that raises an error ends the watch but not the commit
.scope node
.use tasks
> w = WATCH t: Task WHERE 10 / t.n > 1 [initial: none] RETURN t.title
> SPAWN a: Task { title = "a", n = 2 }
.events w
added "a"
> SPAWN b: Task { title = "b", n = 0 }
.events w
(nothing)
.errors w
E2101 Division by zero
> MATCH s: _Watch RETURN s.status
"cancelled"
> MATCH t: Task RETURN COUNT(*)
2
