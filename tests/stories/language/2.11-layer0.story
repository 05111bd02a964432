-- Layer 0

.ontology small
    --- Things to do.
    node Task { title: String, n: Int = 1 }
    edge next(a: Task, b: Task) [acyclic]
    constraint c [soft]: t: Task => t.n > 0
    rule r [priority: 3, manual]: t: Task => SET t.n = 2
    policy p [priority: 7]: ON * ALLOW IF true

=== 2.11.protected, 2.12.E2012 | the engine's own types cannot be written
> SPAWN x: _Watch { pattern = "x" }
! E2012 Cannot create protected type '_Watch'
> SPAWN x: _Session
! E2012 protected
> MATCH s: _Session SET s.started_at = now()
! E2012 protected
> MATCH s: _Session KILL s
! E2012 protected
> MATCH s: _Session, w: _Watch LINK _session_has_watch(s, w)
! E2012 protected
> KILL #_tick
! E2012 protected

=== 2.11.protected | Layer 0 types cannot be declared
.define node _Mine
! E2012 reserved
.define
    node Mine: _Session
! E2010 sealed

=== 2.11.read | the ontology can be read by MATCH
.use small
> MATCH n: _NodeType WHERE n.name = "Task" RETURN n.name, n.abstract, n.doc
"Task" | false | "Things to do."
> MATCH e: _EdgeType WHERE e.name = "next" RETURN e.arity, e.acyclic, e.parameters
2 | true | "a: Task, b: Task"
> MATCH a: _AttributeDef WHERE a.owner = "Task" RETURN a.name, a.type
"title" | "String"
"n" | "Int"
> MATCH c: _ConstraintDef WHERE c.name = "c" RETURN c.soft
true
> MATCH r: _RuleDef RETURN r.name, r.priority, r.manual
"r" | 3 | true
> MATCH p: _PolicyRule RETURN p.name, p.allow, p.priority
"p" | true | 7

=== 2.11.read | the engine's state can be read by MATCH
.use small
> MATCH t: _TickState RETURN t.global_tick
0
> SPAWN t: Task { title = "x" }
> MATCH t: _TickState RETURN t.global_tick, t.last_tick_at
1 | @2024-01-01T00:00:00.000Z
> MATCH s: _Session WHERE s = current_session() RETURN s.started_at
@2024-01-01T00:00:00.000Z
> MATCH w: _Watch RETURN COUNT(*)
0
> MATCH w: _WatchEvent RETURN COUNT(*)
0
> MATCH w: _DeadLetter RETURN COUNT(*)
0
> MATCH s: _Session, _session_has_watch(s, w) RETURN COUNT(*)
0

=== 2.11.read | a statement may join both worlds
.use small
> SPAWN t: Task { title = "x" }
> MATCH t: Task, n: _NodeType WHERE n.name = t._type RETURN t.title, n.name
"x" | "Task"
> INSPECT #_tick
true | "_tick" | "_TickState" | 1 | @2024-01-01T00:00:00.000Z

=== 2.11.read, 5.C18 | `any` does not include Layer 0
.use small
> MATCH x: any RETURN COUNT(*)
0
> SPAWN t: Task { title = "x" }
> MATCH x: any RETURN x._type
"Task"
> MATCH e: edge<any>(a, b) RETURN COUNT(*)
0
