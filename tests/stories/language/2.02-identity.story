-- Identity, #id, bindings

.ontology people
    node Person { name: String }
    edge knows(a: Person, b: Person) { since: Int? }

=== 2.2.1 | ids are given by the engine, unique over nodes and edges, and stay
.use people
>> SPAWN a: Person { name = "a" }
   SPAWN b: Person { name = "b" }
   LINK k: knows(#a, #b)
> MATCH p: Person RETURN p.id, p._id, p._type
#a | #a | "Person"
#b | #b | "Person"
> MATCH knows(x, y) AS k RETURN k.id, k._type, k._targets
#k | "knows" | [#a, #b]
> SET #a.name = "c"
> MATCH p: Person WHERE p.name = "c" RETURN p.id
#a
> SET #a.id = "x"
! E2002 id

=== 2.2.1, 5.C3 | a user attribute named id shadows the built-in one; _id stays
.define node Order { id: Int }
> SPAWN o: Order { id = 7 }
> MATCH o: Order RETURN o.id, o._id
7 | #o
> MATCH o: Order WHERE o.id = 7 RETURN o._type
"Order"

=== 2.2.1 | ids are never used twice, also after opening again
.use people
> SPAWN a: Person { name = "first" }
.restart
> SPAWN b: Person { name = "second" }
> MATCH p: Person, q: Person WHERE p.id = q.id RETURN COUNT(*)
2

=== 2.2.2 | SPAWN, LINK AS and inline SPAWN AS bind names in the session, across statements and transactions
.use people
> SPAWN ann: Person { name = "Ann" }
> BEGIN
> LINK knows(#ann, SPAWN Person { name = "Bob" } AS bob) AS k
created 1, linked 1
> COMMIT
> MATCH p: Person WHERE p = #bob RETURN p.name
"Bob"
> SET #k.since = 2020
modified 1
> MATCH knows(#ann, #bob) AS e RETURN e.since
2020

=== 2.2.2 | every form of naming a new edge or node
.use people
> SPAWN ann: Person { name = "Ann" }
> LINK one: knows(#ann, #ann)
> LINK knows(#ann, #ann) AS two { since = 2 }
> LINK knows(#ann, #ann) { since = 3 } AS three
> LINK knows(SPAWN x: Person { name = "X" }, SPAWN Person { name = "Y" } AS y)
> MATCH knows(#ann, #ann) AS e RETURN e.id
#one
#two
#three
> MATCH knows(a, b) WHERE a = #x RETURN a.id, b.id
#x | #y

=== 2.2.2 | binding a name again overwrites it
.use people
> SPAWN p: Person { name = "one" }
> SPAWN p: Person { name = "two" }
> MATCH x: Person WHERE x = #p RETURN x.name
"two"

=== 2.2.2 | names belong to one session
.use people
> SPAWN p: Person { name = "one" }
other> KILL #p
! E3601 not found

=== 2.2.3 | #name is a binding first, else a literal id; quoted and parameter ids are literal
.use people
> SPAWN a: Person { name = "Ann" }
.params {"id": "#a"}
> MATCH p: Person WHERE p = #$id RETURN p.name
"Ann"
.params {"id": "#a"}
other> SET #$id.name = "Anna"
modified 1
.params {"id": "#a"}
other> MATCH p: Person WHERE p.id = $id RETURN p.name
"Anna"
> MATCH p: Person WHERE p = #"a" RETURN p.name
(nothing)

=== 2.2.3 | an unknown id is an error for writes, no match in comparisons, and found: false for INSPECT
.use people
> SPAWN a: Person { name = "Ann" }
> LINK knows(#a, #missing)
! E3601 mutation error
! not found
> UNLINK #missing
! E3601 not found
> KILL #missing
! E3601 not found
> SET #missing.name = "x"
! E3601 not found
> MATCH p: Person WHERE p = #missing RETURN p
(nothing)
> MATCH knows(#missing, p) RETURN p
(nothing)
> INSPECT #missing
columns: found
false

=== 2.2.3 | INSPECT shows everything about one element
.use people
>> SPAWN a: Person { name = "Ann" }
   LINK k: knows(#a, #a) { since = 1 }
> INSPECT #a
columns: found | id | _type | name
true | #a | "Person" | "Ann"
> INSPECT #k
columns: found | id | _type | since | _targets
true | #k | "knows" | 1 | [#a, #a]
> INSPECT #a RETURN name, _type AS kind
columns: name | kind
"Ann" | "Person"

=== 2.2.4 | a bare name is a variable of the statement first, then a binding
.use people
>> SPAWN a: Person { name = "Ann" }
   SPAWN b: Person { name = "Bob" }
> LINK knows(a, b) AS k
linked 1
> SET a.name = "Anna"
modified 1
> MATCH a: Person WHERE a.name = "Bob" SET a.name = "Bobby"
modified 1
> MATCH p: Person RETURN p.id, p.name
#a | "Anna"
#b | "Bobby"
> UNLINK k
unlinked 1
> KILL a
deleted 1

=== 2.2.5 | #self is the actor
.use people
>> SPAWN ann: Person { name = "Ann" }
   SPAWN bob: Person { name = "Bob" }
   LINK knows(#ann, #bob)
> BEGIN SESSION AS #ann
> MATCH knows(#self, p) RETURN p.name
"Bob"
> SET #self.name = "Anna"
modified 1
> END SESSION
> MATCH p: Person RETURN p.name
"Anna"
"Bob"

=== 2.2.5 | #self without an actor
.use people
> MATCH knows(#self, p) RETURN p.name
! E7002 policy error
> SPAWN p: Person { name = "x" }
> MATCH knows(#self, p) RETURN p.name
! E7002 actor
> KILL #self
! E7002 actor

=== 2.2.6 | ROLLBACK drops the bindings of the transaction and brings back the old ones
.use people
> SPAWN p: Person { name = "kept" }
> BEGIN
> SPAWN p: Person { name = "gone" }
> SPAWN q: Person { name = "gone too" }
> ROLLBACK
> MATCH x: Person WHERE x = #p RETURN x.name
"kept"
> KILL #q
! E3601 not found

=== 2.2.6 | ROLLBACK TO and failing statements restore bindings
.use people
> BEGIN
> SPAWN p: Person { name = "one" }
> SAVEPOINT s
> SPAWN p: Person { name = "two" }
> SPAWN q: Person { name = "three" }
> ROLLBACK TO s
> SET #p.name = "1"
> COMMIT
> MATCH x: Person RETURN x.name
"1"
> LINK knows(SPAWN Person { name = "never" } AS r, #missing)
! E3601 not found
> KILL #r
! E3601 not found
