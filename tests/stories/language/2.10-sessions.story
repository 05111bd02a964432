-- Context functions and sessions

.ontology users
    node User { name: String }
    node Group
    edge member(u: User, g: Group)

=== 2.10.1 | BEGIN SESSION pushes an actor, END SESSION pops it; inner ones replace outer ones
.use users
>> SPAWN ann: User { name = "Ann" } SPAWN bob: User { name = "Bob" }
> MATCH () RETURN current_actor()
null
> BEGIN SESSION AS #ann
> MATCH () RETURN current_actor().name
"Ann"
> BEGIN SESSION AS bob
> MATCH () RETURN current_actor().name
"Bob"
> END SESSION
> MATCH () RETURN current_actor().name
"Ann"
> END SESSION
> MATCH () RETURN current_actor()
null
> END SESSION
! E5008 SESSION_NOT_STARTED

=== 2.10.1 | the actor of a session cannot be changed
.use users
.define policy all: ON * ALLOW IF current_actor() = #"missing"
>> SPAWN ann: User { name = "Ann" } SPAWN bob: User { name = "Bob" }
.session a as #ann
a> MATCH u: User RETURN u.name
(nothing)
a> END SESSION
! E5008 SESSION_NOT_STARTED
.params {"bob": "#bob"}
a> BEGIN SESSION AS #$bob
! E7001 Permission denied
a> MATCH u: User RETURN u.name
(nothing)

=== 2.10.1 | the system context is bound by no policy
.use users
.define policy none: ON * DENY IF true
> SPAWN ann: User { name = "Ann" }
created 1
> MATCH u: User RETURN u.name
"Ann"

=== 2.10.2, 2.12.E7003 | an actor must be a node that exists
.use users
>> SPAWN ann: User { name = "Ann" } SPAWN g: Group LINK m: member(#ann, #g)
> BEGIN SESSION AS #missing
! E7003 policy error
> BEGIN SESSION AS #m
! E7003
> BEGIN SESSION AS #g
> END SESSION
.session x as missing
! E7003

=== 2.10.2, 5.C13 | any node type may act, unless the settings name some
.settings actor_types = ["User"]
.use users
>> SPAWN ann: User { name = "Ann" } SPAWN g: Group
> BEGIN SESSION AS #ann
> END SESSION
> BEGIN SESSION AS #g
! E7003 Group

=== 2.10.3 | current_actor() is legal everywhere but in constraints and defaults
.use users
>> SPAWN ann: User { name = "Ann" } SPAWN g: Group
> BEGIN SESSION AS #ann
> LINK member(current_actor(), #g)
linked 1
> MATCH g: Group WHERE member(current_actor(), g) RETURN COUNT(*)
1
> MATCH member(current_actor(), g) RETURN g._type
"Group"
> MATCH s: _Session WHERE s = current_session() RETURN COUNT(*)
1
.define constraint c: u: User => current_session() != null
! E2009 constraint
.define node X { a: ID = current_actor() }
! E2010

=== 2.10.3 | operation() and related functions are allowed in policies only
.use users
.define rule r: u: User WHERE operation() = "SPAWN" => SET u.name = "x"
! E2009 policy
.define constraint c: u: User => target_type() = "User"
! E2009 policy
.define policy p: ON SPAWN(u: User) ALLOW IF operation() = "SPAWN" AND target_type() = "User"

=== 2.10.4 | context functions in the condition of a policy
.use users
.define
    policy see: ON MATCH(_) ALLOW IF true
    policy spawn: ON * ALLOW IF operation() = "SPAWN" AND target_type() = "Group"
    policy set: ON * ALLOW IF operation() = "SET" AND target_attr() = "name" AND target() = current_actor()
    policy link: ON * ALLOW IF operation() = "LINK" AND target_type() = "member"
    policy unlink: ON * ALLOW IF operation() = "UNLINK"
>> SPAWN ann: User { name = "Ann" } SPAWN bob: User { name = "Bob" }
> BEGIN SESSION AS #ann
> SPAWN g: Group
created 1
> SPAWN u: User { name = "x" }
! E7001
> SET #ann.name = "Anna"
modified 1
> SET #bob.name = "x"
! E7001
> LINK member(#ann, #g)
linked 1
> UNLINK member(#ann, #g)
unlinked 1
> KILL #g
! E7001

=== 2.10.5, 5.C14 | an actor's session survives COMMIT and ROLLBACK
.use users
> SPAWN ann: User { name = "Ann" }
> BEGIN SESSION AS #ann
> BEGIN
> SPAWN b: User { name = "B" }
> COMMIT
> MATCH () RETURN current_actor().name
"Ann"
> BEGIN
> ROLLBACK
> MATCH () RETURN current_actor().name
"Ann"
> END SESSION

=== 2.10.5, 2.12.E5007 | a closed session takes no statements, and its open transaction is rolled back
.use users
b> BEGIN
b> SPAWN x: User { name = "x" }
.close b
b> MATCH u: User RETURN u.name
! E5007 closed
> MATCH u: User RETURN u.name
(nothing)
