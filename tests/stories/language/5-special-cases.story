-- Decisions for cases that the language reference leaves open.
-- The behaviour of watches is covered in ../watch; these stories cover which syntax is accepted and rejected.

.ontology tasks
    node Task { title: String = "?", n: Int = 0 }
    node Person { name: String? }
    edge assigned(t: Task, p: Person)

=== 5.A1 | a delivery is named by a text, a parameter or an id
> ACK "d-1"
! E1102/E8004
.params {"d": "d-1"}
> ACK $d
! E1102/E8004
> ACK #d
! E1102/E8004
> NACK "d-1" [no_retry]
! E1102/E8004
> ACK 5
! E1001

=== 5.A2 | one bracket of options or several, each option once
.use tasks
> WATCH t: Task [mode: watch, buffer: 5] RETURN t
> WATCH t: Task [mode: watch] [buffer: 5] RETURN t
> WATCH t: Task [buffer: 5] [buffer: 6] RETURN t
! E8009 buffer
> MATCH w: _Watch RETURN w.buffer_size
5
5

=== 5.A3 | WHERE precedes the options; other MATCH clauses are rejected
.use tasks
> WATCH t: Task WHERE t.n > 1 [buffer: 5] RETURN t
> WATCH t: Task [buffer: 5] WHERE t.n > 1 RETURN t
! E1001
> WATCH t: Task OPTIONAL MATCH assigned(t, p) RETURN t
! E8009 OPTIONAL MATCH
> WATCH t: Task MATCH p: Person RETURN t
! E1001

=== 5.A4 | a watch has actions, a RETURN, or both
.use tasks
> WATCH t: Task ON MATCH DO SET t.n = 1
> WATCH t: Task ON MATCH DO SET t.n = 1 SPAWN p: Person RETURN t
> WATCH t: Task
! E1001

=== 5.A5 | a handle is named in front or by a trailing AS, which is the column's alias too
.use tasks
> w = WATCH t: Task RETURN t
> WATCH t: Task RETURN t AS live_feed
> MATCH w: _Watch RETURN w.name
"w"
"live_feed"
> MATCH w: _Watch WHERE w = #w RETURN w.name
"w"

=== 5.A6 | both forms of durations, m is a minute
> MATCH () RETURN 10s, 1m, 16ms, 7d, 2w, 1h, 5min, 30.seconds, 1.day
10s | 1m | 16ms | 1w | 2w | 1h | 5m | 30s | 1d

=== 5.A7 | ALTER is read with any option; only four may change
.use tasks
> w = WATCH t: Task RETURN t
> ALTER WATCH #w SET [buffer: 5, on_full: drop]
> ALTER WATCH #w SET [ordering: causal]
! E8008
> ALTER WATCH #w SET [window: tumbling(5s)]
! E8008
> ALTER WATCH #nothing SET [buffer: 5]
! E8002

=== 5.A8 | handles are ids, and names inside MATCH … DO
.use tasks
> w = WATCH t: Task RETURN t
> PAUSE WATCH #w
> MATCH w: _Watch RETURN w.status
"paused"
> MATCH s: _Watch WHERE s.status = "paused" DO CANCEL WATCH s.id
> RESUME WATCH #w
! E8002

=== 5.A9 | DISTINCT yes, ORDER BY and LIMIT no
.use tasks
> WATCH t: Task RETURN DISTINCT t.n
> WATCH t: Task RETURN t ORDER BY t.n
! E1001
> WATCH t: Task RETURN t LIMIT 1
! E1001

=== 5.A10 | older names are not known
.use tasks
> SUBSCRIBE t: Task RETURN t
! E1001
> WATCH Task IN ROOT ON_CREATE
! E1001

=== 5.A11 | NOT binds looser than comparison, ?? loosest, to the right
> MATCH () RETURN NOT 1 = 2, null ?? null ?? 3, false OR null ?? true, 1 + 2 * 3, -2 * -3, 10 - 3 - 2
true | 3 | true | 7 | 6 | 5

=== 5.A12 | filter is an option beside WHERE
.use tasks
> WATCH t: Task WHERE t.n > 1 [filter: t.n < 5 AND t.title != "x"] RETURN t
> WATCH t: Task [filter: t.nothing < 5] RETURN t
! E2002 nothing

=== 5.A13 | an unknown option is not a parse error
.use tasks
> WATCH t: Task [colour: blue] RETURN t
! E8009 colour
> WATCH t: Task [mode: sometimes] RETURN t
! E8009 mode

=== 5.C8 | the difference of two timestamps is a Duration that compares and adds with Int milliseconds
> MATCH () RETURN @2024-01-02 - @2024-01-01 = 86400000, @2024-01-02 - @2024-01-01 > 5, (@2024-01-02 - @2024-01-01) + 1, type_of(@2024-01-02 - @2024-01-01)
true | true | 86400001ms | "Duration"

=== 5.C9 | every connection is a _Session; current_session() is its own
.use tasks
> MATCH s: _Session RETURN COUNT(*)
1
b> MATCH s: _Session RETURN COUNT(*)
2
> MATCH s: _Session WHERE s = current_session() RETURN s.started_at
@2024-01-01T00:00:00.000Z
> MATCH () RETURN current_session().started_at
@2024-01-01T00:00:00.000Z
.close b
> MATCH s: _Session RETURN COUNT(*)
1

=== 5.C9 | an actor sees only its own sessions
.use tasks
.define policy none: ON * DENY IF true
>> SPAWN ann: Person SPAWN bob: Person
.session ann as #ann
.session bob as #bob
> MATCH s: _Session RETURN COUNT(*)
3
ann> MATCH s: _Session RETURN COUNT(*)
1

=== 5.C10 | _Watch has an attribute for every option
> MATCH a: _AttributeDef WHERE a.owner = "_Watch" AND a.name IN ["on_full", "buffer_size", "status", "session"] RETURN COUNT(*)
4
> MATCH c: _ConstraintDef WHERE c.name = "_watch_valid_on_full" RETURN COUNT(*)
1

=== 5.C11 | a watch is managed by its own session, its actor or the system context; others are refused
.use tasks
.define policy all: ON * ALLOW IF operation() != "META SET"
>> SPAWN ann: Person SPAWN bob: Person
.session ann as #ann
.session bob as #bob
ann> w = WATCH t: Task RETURN t
ann> PAUSE WATCH #w
.params {"w": "#w"}
bob> RESUME WATCH #$w
! E8010
.params {"w": "#w"}
> RESUME WATCH #$w

=== 5.C12 | branch syntax is parsed and rejected
.use tasks
> WATCH t: Task [branch: #main] RETURN t
! E8009 branching is not available
> WATCH t: Task [branches: all] RETURN t
! E8009 branching is not available

=== 5.C15 | META operations are read
.use tasks
.define policy w: ON META SPAWN(_Watch) | KILL(t: Task) | UNLINK(e: assigned) ALLOW IF true
> MATCH p: _PolicyRule RETURN p.name
"w"

=== 5.C17 | `.attr` behind an operation pattern is supported, a bare WHERE behind a test is not
.use tasks
.define policy hide: ON MATCH(t: Task).n DENY IF true
.define policy odd: ON MATCH(t: Task) ALLOW IF assigned(t, p) WHERE p.name = "x"
! E1001

=== 5.C19 | now() is fixed at the start of the transaction
.define node E { at: Timestamp? }
> BEGIN
.advance 5s
> SPAWN a: E { at = now() }
.advance 5s
> SPAWN b: E { at = now() }
> COMMIT
> MATCH e: E RETURN e.at
@2024-01-01T00:00:00.000Z
@2024-01-01T00:00:00.000Z

=== 5.C20 | abstract and sealed in every place
.define
    abstract node A
    [abstract] node B
    node C [abstract]
    node D [abstract]: A
    node E: A [sealed]
    sealed node F: B
> MATCH n: _NodeType WHERE n.abstract = true AND NOT starts_with(n.name, "_") RETURN n.name
"A"
"B"
"C"
"D"
> MATCH n: _NodeType WHERE n.sealed = true AND NOT starts_with(n.name, "_") RETURN n.name
"E"
"F"

=== 5.C22 | an error reads: class words, code, name, message
.use tasks
> MATCH t: Task RETURN t.nothing
! E2002 analysis error: E2002 UNKNOWN_ATTRIBUTE: Unknown attribute 'nothing' on type 'Task'
> LINK assigned(#a, #b)
! E3601 mutation error: E3601 NOT_FOUND: #a was not found
