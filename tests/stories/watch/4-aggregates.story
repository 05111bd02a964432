-- Live counts, sums and tables.

.ontology tasks
    node Project { name: String }
    node Task { title: String = "?", status: String = "todo", priority: Int = 0, hours: Float? }
    edge belongs_to(task: Task, project: Project)

=== example.count, watch.aggregates-per-commit, watch.aggregates | a live count starts at zero and always has one row
.scope node
.use tasks
> count = WATCH t: Task RETURN COUNT(t) AS total
.events count
initial
  0
> SPAWN a: Task
> SPAWN b: Task
.events count
changed 0 -> 1
changed 1 -> 2
> BEGIN
> KILL #a
> SPAWN c: Task
> COMMIT
.events count
(nothing)
> MATCH t: Task KILL t
.events count
changed 2 -> 0

=== watch.aggregates-per-commit, watch.aggregates | totals of a project: all, done, average
.scope pattern
.use tasks
>> SPAWN project_1: Project { name = "house" }
   SPAWN a: Task { priority = 2 }
   LINK belongs_to(#a, #project_1)
> stats = WATCH t: Task, belongs_to(t, #project_1)
  RETURN COUNT(t) AS total,
         COUNT(t WHERE t.status = "done") AS done,
         AVG(t.priority) AS avg_priority
.events stats
initial
  1 | 0 | 2.0
> SET #a.status = "done"
.events stats
changed 1 | 0 | 2.0 -> 1 | 1 | 2.0
> SPAWN b: Task { priority = 3 }
.events stats
(nothing)
> LINK belongs_to(#b, #project_1)
.events stats
changed 1 | 1 | 2.0 -> 2 | 1 | 2.5
> MATCH t: Task KILL t
.events stats
changed 2 | 1 | 2.5 -> 0 | 0 | null

=== example.leaderboard, watch.identity, watch.aggregates | groups are added and removed
.scope pattern
.define
    node Player { name: String }
    node Win { points: Int }
    edge won(player: Player, win: Win)
>> SPAWN ann: Player { name = "Ann" }
   SPAWN bob: Player { name = "Bob" }
> board = WATCH p: Player, w: Win, won(p, w) RETURN p.name, SUM(w.points) AS points, COUNT(*) AS wins, MAX(w.points) AS best
.events board
initial (nothing)
> LINK won(#ann, SPAWN Win { points = 3 } AS w1)
.events board
added "Ann" | 3 | 1 | 3
> LINK won(#ann, SPAWN Win { points = 5 } AS w2)
> LINK won(#bob, SPAWN Win { points = 4 } AS w3)
.events board
changed "Ann" | 3 | 1 | 3 -> "Ann" | 8 | 2 | 5
added "Bob" | 4 | 1 | 4
> KILL #w2
> UNLINK won(#bob, #w3)
.events board
changed "Ann" | 8 | 2 | 5 -> "Ann" | 3 | 1 | 3
removed "Bob" | 4 | 1 | 4
> SET #ann.name = "Anna"
.events board
removed "Ann" | 3 | 1 | 3
added "Anna" | 3 | 1 | 3

=== watch.aggregates | MIN and MAX are correct when the extreme value is removed
.scope node
.use tasks
>> SPAWN a: Task { priority = 1, hours = 0.1 }
   SPAWN b: Task { priority = 5, hours = 0.2 }
   SPAWN c: Task { priority = 5 }
> range = WATCH t: Task RETURN MIN(t.priority), MAX(t.priority), SUM(t.hours), COUNT(DISTINCT t.priority)
.events range
initial
  1 | 5 | 0.30000000000000004 | 2
> KILL #b
.events range
changed 1 | 5 | 0.30000000000000004 | 2 -> 1 | 5 | 0.1 | 2
> KILL #a
.events range
changed 1 | 5 | 0.1 | 2 -> 5 | 5 | null | 1

=== watch.aggregates | aggregates count parallel edges as MATCH does
.scope pattern
.use tasks
>> SPAWN p: Project { name = "p" }
   SPAWN t: Task
> links = WATCH t: Task, p: Project, belongs_to(t, p) RETURN p.name, COUNT(*)
.events links
initial (nothing)
> LINK belongs_to(#t, #p) AS one
> LINK belongs_to(#t, #p) AS two
.events links
added "p" | 1
changed "p" | 1 -> "p" | 2
> UNLINK #one
.events links
changed "p" | 2 -> "p" | 1

=== 5.A9, watch.distinct | DISTINCT sends added for the first and removed for the last occurrence
.scope node
.use tasks
> SPAWN a: Task
> states = WATCH t: Task RETURN DISTINCT t.status
.events states
initial
  "todo"
> SPAWN b: Task { status = "done" }
> SPAWN c: Task { status = "done" }
.events states
added "done"
> SET #b.status = "todo"
.events states
(nothing)
> SET #c.status = "todo"
.events states
removed "done"

=== example.nested | a nested pattern count in each row
.scope pattern
.use tasks
>> SPAWN p: Project { name = "p" }
   SPAWN t: Task
> rows = WATCH p: Project RETURN p.name, COUNT(t: Task, belongs_to(t, p) WHERE t.status = "todo") AS todo
> busy = WATCH p: Project WHERE COUNT(t: Task, belongs_to(t, p)) > 1 RETURN p.name
.events rows
initial
  "p" | 0
.events busy
initial (nothing)
> LINK belongs_to(#t, #p)
.events rows
changed "p" | 0 -> "p" | 1
> LINK belongs_to(SPAWN Task AS u, #p)
.events rows
changed "p" | 1 -> "p" | 2
.events busy
added "p"
> MATCH t: Task SET t.status = "done"
.events rows
changed "p" | 2 -> "p" | 0
> KILL #u
.events busy
removed "p"

=== example.collect | a list per group
.scope node
.use tasks
> SPAWN a: Task { title = "a" }
> lists = WATCH t: Task RETURN t.status, COLLECT(t.title) AS titles
.events lists
initial
  "todo" | ["a"]
> SPAWN b: Task { title = "b", status = "done" }
.events lists
added "done" | ["b"]
> SET #b.status = "todo"
.events lists
changed "todo" | ["a"] -> "todo" | ["a", "b"]
removed "done" | ["b"]

=== watch.aggregates | an alarm on a computed value
.scope node
.define node Stock { name: String, level: Int, wanted: Int }
> SPAWN s: Stock { name = "nails", level = 100, wanted = 50 }
> share = WATCH s: Stock WHERE s.level < s.wanted RETURN s.name, s.wanted - s.level AS missing
.events share
initial (nothing)
> SET #s.level = 40
> SET #s.wanted = 60
> SET #s.level = 60
.events share
added "nails" | 10
changed "nails" | 10 -> "nails" | 20
removed "nails" | 20
