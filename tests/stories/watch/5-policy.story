-- Watches of actors: permission to watch, and visibility of matches.

.ontology office
    node User { name: String, admin: Bool = false }
    node Task { title: String, priority: Int = 0, score: Int?, secret: Bool = false }
    edge assigned_to(task: Task, user: User)
    policy watchers: ON META SPAWN(_Watch) ALLOW IF true
    policy people: ON MATCH(u: User) ALLOW IF true

=== watch.policy, 3.2.7 | equal watches of several actors each receive visible tasks only
.scope pattern
.use office
.define policy user_sees_own_tasks: ON MATCH(t: Task) ALLOW IF EXISTS(assigned_to(t, current_actor()))
>> SPAWN ann: User { name = "Ann" }
   SPAWN bob: User { name = "Bob" }
   SPAWN a: Task { title = "Ann's", priority = 7 }
   SPAWN b: Task { title = "Bob's", priority = 7 }
   LINK assigned_to(#a, #ann)
   LINK assigned_to(#b, #bob)
.session ann as #ann
.session bob as #bob
ann> hers = WATCH t: Task WHERE t.priority > 5 RETURN t.title
bob> his = WATCH t: Task WHERE t.priority > 5 RETURN t.title
.events hers
initial
  "Ann's"
.events his
initial
  "Bob's"
> SET #b.title = "still Bob's"
.events hers
(nothing)
.events his
changed "Bob's" -> "still Bob's"

=== 3.2.7, example.granted | granting or revoking a permission sends added or removed
.scope pattern
.use office
.define policy own: ON MATCH(t: Task) ALLOW IF EXISTS(assigned_to(t, current_actor()))
>> SPAWN ann: User { name = "Ann" }
   SPAWN t: Task { title = "t" }
.session ann as #ann
ann> hers = WATCH t: Task RETURN t.title
.events hers
initial (nothing)
> LINK assigned_to(#t, #ann)
.events hers
added "t"
> SET #t.title = "u"
.events hers
changed "t" -> "u"
> UNLINK assigned_to(#t, #ann)
.events hers
removed "u"

=== 3.2.7, example.granted | losing and regaining a role removes and adds matches
.scope pattern
.use office
.define policy admins: ON MATCH(t: Task) ALLOW IF EXISTS(me: User WHERE me = current_actor() AND me.admin)
>> SPAWN ann: User { name = "Ann" }
   SPAWN a: Task { title = "a" }
   SPAWN b: Task { title = "b" }
.session ann as #ann
ann> all = WATCH t: Task RETURN t.title
! E8001 Watch pattern denied
> SET #ann.admin = true
ann> all = WATCH t: Task RETURN t.title
.events all
initial
  "a"
  "b"
> SET #ann.admin = false
> SET #a.title = "hidden"
.events all
removed "a"
removed "b"
> SET #ann.admin = true
.events all
added "hidden"
added "b"

=== watch.policy, example.hidden | a hidden attribute is null, and its changes send no event
.scope node
.use office
.define
    policy tasks: ON MATCH(t: Task) ALLOW IF true
    policy scores: ON MATCH(t: Task).score DENY IF t.secret
>> SPAWN ann: User { name = "Ann" }
   SPAWN t: Task { title = "t", score = 3 }
.session ann as #ann
ann> all = WATCH t: Task RETURN t.title, t.score
> system = WATCH t: Task RETURN t.title, t.score
.events all, system
initial
  "t" | 3
> SET #t.secret = true
.events all
changed "t" | 3 -> "t" | null
.events system
(nothing)
> SET #t.score = 4
.events all
(nothing)
.events system
changed "t" | 3 -> "t" | 4
> SET #t.secret = false
.events all
changed "t" | null -> "t" | 4

=== example.hidden | a condition on a hidden attribute cannot be used to guess it
.scope node
.use office
.define
    policy tasks: ON MATCH(t: Task) ALLOW IF true
    policy scores: ON MATCH(t: Task).score DENY IF t.secret
>> SPAWN ann: User { name = "Ann" }
   SPAWN t: Task { title = "t", score = 9, secret = true }
.session ann as #ann
ann> good = WATCH t: Task WHERE t.score > 5 RETURN t.title
.events good
initial (nothing)
> SET #t.score = 10
.events good
(nothing)
> SET #t.secret = false
.events good
added "t"

=== example.counted | aggregates count visible elements only
.scope pattern
.use office
.define policy open: ON MATCH(t: Task) ALLOW IF NOT t.secret
>> SPAWN ann: User { name = "Ann" }
   SPAWN a: Task { title = "a" }
   SPAWN b: Task { title = "b", secret = true }
.session ann as #ann
ann> count = WATCH t: Task RETURN COUNT(*)
> all = WATCH t: Task RETURN COUNT(*)
.events count
initial
  1
.events all
initial
  2
> SET #b.secret = false
.events count
changed 1 -> 2
.events all
(nothing)

=== E8001, 3.2.7, watch.disclosure | watching a hidden type is rejected without disclosing why
.scope node
.use office
>> SPAWN ann: User { name = "Ann" }
   SPAWN t: Task { title = "top secret" }
.session ann as #ann
ann> w = WATCH t: Task RETURN t
! E8001 watch error: E8001 WATCH_PATTERN_DENIED: Watch pattern denied
!not Task
!not policy
!not n1
ann> v = WATCH u: User RETURN u.name
.events v
initial
  "Ann"

=== E8001, 3.2.7 | watching a hidden attribute is rejected
.scope node
.use office
.define
    policy tasks: ON MATCH(t: Task) ALLOW IF true
    policy scores: ON MATCH(t: Task).score DENY IF true
> SPAWN ann: User { name = "Ann" }
.session ann as #ann
ann> w = WATCH t: Task WHERE t.score > 5 RETURN t.title
! E8001 Watch pattern denied
ann> w = WATCH t: Task RETURN t.title, t.score
! E8001 Watch pattern denied
ann> w = WATCH t: Task [filter: t.score > 5] RETURN t.title
! E8001 Watch pattern denied
ann> w = WATCH t: Task RETURN t.title

=== E8001, 5.C15 | creating a watch needs a permission
.scope node
.define
    node User { name: String }
    policy look: ON MATCH(_) ALLOW IF true
> SPAWN ann: User { name = "Ann" }
.session ann as #ann
ann> MATCH u: User RETURN u.name
"Ann"
ann> w = WATCH u: User RETURN u.name
! E8001 Watch pattern denied

=== watch.filter, watch.captured-actor | current_actor() is the actor that created the watch
.scope node
.define
    node User { name: String }
    node Task { title: String, assignee: User? }
>> SPAWN ann: User { name = "Ann" }
   SPAWN bob: User { name = "Bob" }
> BEGIN SESSION AS #ann
> mine = WATCH t: Task [filter: t.assignee = current_actor()] RETURN t.title
> END SESSION
.events mine
initial (nothing)
> SPAWN a: Task { title = "a", assignee = #bob }
> SPAWN b: Task { title = "b", assignee = #ann }
.events mine
added "b"
> SET #a.assignee = #ann
> SET #b.assignee = #bob
.events mine
added "a"
removed "b"

=== example.define, 3.2.7 | a policy defined later removes hidden matches
.scope node
.use office
.define policy tasks: ON MATCH(t: Task) ALLOW IF true
>> SPAWN ann: User { name = "Ann" }
   SPAWN a: Task { title = "a" }
   SPAWN b: Task { title = "b", secret = true }
.session ann as #ann
ann> all = WATCH t: Task RETURN t.title
.events all
initial
  "a"
  "b"
.define policy secrets: ON MATCH(t: Task) DENY IF t.secret
.events all
removed "b"
> SET #a.secret = true
.events all
removed "a"

=== 3.2.6, example.edges | an edge is visible only if its targets are
.scope pattern
.use office
.define policy open: ON MATCH(t: Task) ALLOW IF NOT t.secret
>> SPAWN ann: User { name = "Ann" }
   SPAWN t: Task { title = "t", secret = true }
   LINK assigned_to(#t, #ann)
.session ann as #ann
ann> links = WATCH assigned_to(t, u) RETURN t.title, u.name
ann> idle = WATCH u: User WHERE NOT EXISTS(t: Task, assigned_to(t, u)) RETURN u.name
.events links
initial (nothing)
.events idle
initial
  "Ann"
> SET #t.secret = false
.events links
added "t" | "Ann"
.events idle
removed "Ann"
