-- Pattern matching

.ontology world
    abstract node Being { key: String }
    node Person: Being { age: Int? }
    node Student: Person { school: String? }
    node Dog: Being { tricks: Int? }
    node Place { key: String }
    edge likes(who: Being, whom: Being) { how: Int? }
    edge lives(who: Person, where: Place)
    edge friend(a: Person, b: Person) [symmetric]
    edge buddy(a: Person, b: Person) [symmetric]
    edge parent(child: Being, of: Being)
    edge between(a: Being, b: Being, c: Being)
    edge retired(who: Person)
    edge doubt(about: edge<likes>, by: Person)
    edge note(about: edge<any>) { text: String? }

=== 2.5.1 | a variable ranges over its type and all subtypes
.use world
>> SPAWN p: Person { key = "p" } SPAWN s: Student { key = "s" } SPAWN d: Dog { key = "d" } SPAWN h: Place { key = "h" }
> MATCH x: Person RETURN x.key
"p"
"s"
> MATCH x: Being RETURN x.key
"p"
"s"
"d"
> MATCH x: Dog | Place RETURN x.key
"d"
"h"
> MATCH x: any RETURN x._type
"Person"
"Student"
"Dog"
"Place"

=== 2.5.1 | unconnected variables give a cross product
.use world
>> SPAWN a: Dog { key = "a" } SPAWN b: Dog { key = "b" } SPAWN c: Dog { key = "c" }
> MATCH x: Dog, y: Dog RETURN COUNT(*)
9
> MATCH () RETURN COUNT(*)
1

=== 2.5.1 | a variable may be declared once; names that begin with _ are reserved
.use world
> MATCH x: Dog, x: Dog RETURN x
! E2005 Duplicate variable 'x'
> MATCH x: Dog, likes(x, y) AS x RETURN y
! E2005 Duplicate variable 'x'
> MATCH x: Dog MATCH x: Dog RETURN x
! E2005 Duplicate variable 'x'
> MATCH _x: Dog RETURN _x
! E2009 reserved

=== 2.5.1 | repeated MATCH conjoins
.use world
>> SPAWN a: Dog { key = "a" } SPAWN b: Dog { key = "b" } LINK likes(#a, #b)
> MATCH x: Dog WHERE x.key = "a" MATCH likes(x, y) RETURN y.key
"b"
> MATCH likes(x, y) MATCH x: Dog, y: Dog RETURN x.key, y.key
"a" | "b"

=== 2.5.2 | an edge pattern wants one stored edge with these targets
.use world
>> SPAWN a: Dog { key = "a" } SPAWN b: Dog { key = "b" } SPAWN c: Dog { key = "c" }
   LINK likes(#a, #b) LINK likes(#b, #c) LINK likes(#c, #c)
> MATCH likes(x, y) RETURN x.key, y.key
"a" | "b"
"b" | "c"
"c" | "c"
> MATCH likes(x, x) RETURN x.key
"c"
> MATCH likes(x, _) RETURN x.key
"a"
"b"
"c"
> MATCH likes(_, _) RETURN COUNT(*)
3
> MATCH likes(x, y), likes(y, z) RETURN x.key, y.key, z.key
"a" | "b" | "c"
"b" | "c" | "c"
"c" | "c" | "c"
> MATCH likes(x, y), likes(y, z) WHERE x != y AND y != z RETURN x.key, z.key
"a" | "c"

=== 2.5.2 | an edge of three, and an edge of one
.use world
>> SPAWN a: Dog { key = "a" } SPAWN b: Dog { key = "b" } SPAWN p: Person { key = "p" }
   LINK between(#a, #b, #p) LINK between(#a, #a, #a) LINK retired(#p)
> MATCH between(x, y, z) RETURN x.key, y.key, z.key
"a" | "b" | "p"
"a" | "a" | "a"
> MATCH between(_, x, x) RETURN x.key
"a"
> MATCH between(#a, _, p), retired(p) RETURN p.key
"p"
> MATCH p: Person, retired(p) RETURN p.key
"p"

=== 2.5.2 | the number of targets must be right
.use world
> MATCH likes(x) RETURN x
! E2007 Edge 'likes' expects 2 targets, got 1
> MATCH likes(x, y, z) RETURN x
! E2007 arity
> MATCH nothing(x, y) RETURN x
! E2001 Unknown edge type 'nothing'

=== 2.5.3 | AS binds the edge; parallel edges multiply rows, named or not
.use world
>> SPAWN a: Dog { key = "a" } SPAWN b: Dog { key = "b" }
   LINK likes(#a, #b) { how = 1 } LINK likes(#a, #b) { how = 2 }
> MATCH likes(x, y) RETURN x.key, y.key
"a" | "b"
"a" | "b"
> MATCH likes(x, y) AS e RETURN x.key, e.how ORDER BY e.how
"a" | 1
"a" | 2
> MATCH likes(x, y) AS e WHERE e.how = 2 RETURN e.how
2

=== 2.5.3 | an edge can be the target of another edge
.use world
>> SPAWN a: Dog { key = "a" } SPAWN p: Person { key = "p" }
   LINK l: likes(#p, #a) LINK doubt(#l, #p) LINK note(#l) { text = "hm" }
> MATCH likes(x, y) AS e, doubt(e, who) RETURN x.key, y.key, who.key
"p" | "a" | "p"
> MATCH note(e) AS n RETURN n.text, e._type
"hm" | "likes"
> MATCH e: likes RETURN e.how, e._targets
null | [#p, #a]
> MATCH x: edge<any>(a, b) RETURN x._type, a._type
"likes" | "Person"
"doubt" | "likes"
> MATCH a: any, x: edge<any>(a, b) RETURN x._type
"likes"
> MATCH x: edge<likes>(a, b) RETURN a.key, b.key
"p" | "a"

=== 2.5.4, 5.C2 | an undeclared target has the type of the edge's parameter
.use world
>> SPAWN p: Person { key = "p", age = 30 } SPAWN h: Place { key = "h" } LINK lives(#p, #h)
> MATCH lives(who, place) RETURN who.age, place.key
30 | "h"
> MATCH p: Person WHERE EXISTS(lives(p, w) WHERE w.key = "h") RETURN p.key
"p"
> MATCH lives(who, place) WHERE place.age = 1 RETURN who
! E2002 Unknown attribute 'age' on type 'Place'

=== 2.5.5 | pattern elements may be in any order; a node pattern for a bound variable checks its type
.use world
>> SPAWN p: Person { key = "p" } SPAWN s: Student { key = "s", school = "x" } SPAWN d: Dog { key = "d" }
   LINK likes(#p, #d) LINK likes(#p, #s)
> MATCH likes(x, y), y: Student, x: Person RETURN x.key, y.school
"p" | "x"
> MATCH likes(x, y), likes(z, y), z: Person, y: Dog RETURN x.key, z.key
"p" | "p"
> MATCH likes(x, y), y: Place RETURN x
! E2003 'y' is Place

=== 2.5.6 | an #id as a target is that element, and no match when there is none
.use world
>> SPAWN a: Dog { key = "a" } SPAWN b: Dog { key = "b" } LINK likes(#a, #b)
> MATCH likes(#a, x) RETURN x.key
"b"
> MATCH likes(x, #b) RETURN x.key
"a"
> MATCH likes(#a, #b) RETURN COUNT(*)
1
> MATCH likes(#gone, x) RETURN COUNT(*)
0
.params {"id": "#a"}
> MATCH likes(#$id, x) RETURN x.key
"b"
.params {"id": "#a"}
> MATCH likes($id, x) RETURN x.key
"b"

=== 2.5.7 | one or more edges, zero or more edges
.use world
>> SPAWN a: Dog { key = "a" } SPAWN b: Dog { key = "b" } SPAWN c: Dog { key = "c" }
   LINK parent(#a, #b) LINK parent(#b, #c)
> MATCH parent+(x, y) RETURN x.key, y.key
"a" | "b"
"a" | "c"
"b" | "c"
> MATCH parent*(x, y) WHERE x.key = "a" RETURN y.key
"a"
"b"
"c"
> MATCH parent+(#a, y) RETURN y.key
"b"
"c"
> MATCH parent+(x, #c) RETURN x.key
"a"
"b"
> MATCH parent+(#a, #c) RETURN COUNT(*)
1
> MATCH parent+(#c, #a) RETURN COUNT(*)
0
> MATCH parent*(#c, #c) RETURN COUNT(*)
1

=== 2.5.7 | paths return each pair once and terminate on cycles
.use world
>> SPAWN a: Dog { key = "a" } SPAWN b: Dog { key = "b" } SPAWN c: Dog { key = "c" } SPAWN d: Dog { key = "d" }
   LINK likes(#a, #b) LINK likes(#b, #a) LINK likes(#a, #b) LINK likes(#b, #c) LINK likes(#d, #d)
> MATCH likes+(x, y) RETURN x.key, y.key
"a" | "a"
"a" | "b"
"a" | "c"
"b" | "a"
"b" | "b"
"b" | "c"
"d" | "d"
> MATCH likes+(x, x) RETURN x.key
"a"
"b"
"d"

=== 2.5.7 | a path of length zero needs a type that is allowed at both ends
.use world
>> SPAWN p: Person { key = "p" } SPAWN h: Place { key = "h" } LINK lives(#p, #h)
> MATCH lives*(x, y) RETURN x.key, y.key
"p" | "h"
> MATCH lives*(x, _) RETURN x.key
"p"
> MATCH lives*(#h, y) RETURN y.key
(nothing)
> MATCH h: Place, lives*(x, h) RETURN x.key
"p"

=== 2.5.7 | a depth, and a range of depths
.use world
>> SPAWN a: Dog { key = "a" } SPAWN b: Dog { key = "b" } SPAWN c: Dog { key = "c" } SPAWN d: Dog { key = "d" }
   LINK parent(#a, #b) LINK parent(#b, #c) LINK parent(#c, #d)
> MATCH parent+(#a, x) [depth: 2] RETURN x.key
"b"
"c"
> MATCH parent+(#a, x) [depth: 2..3] RETURN x.key
"c"
"d"
> MATCH parent*(#a, x) [depth: 1] RETURN x.key
"a"
"b"
> MATCH parent+(#a, x) [depth: 0] RETURN x
! E3101 pattern error
> MATCH parent+(#a, x) [depth: 3..2] RETURN x
! E3101 depth

=== 2.5.7 | only binary edges have paths, and a path has no name
.use world
> MATCH between+(x, y, z) RETURN x
! E3103 binary
> MATCH retired+(x) RETURN x
! E3103 binary
> MATCH likes+(x, y) AS e RETURN e
! E3102 AS

=== 2.5.7 | a search cut off by the default depth of 100 says so
.define
    node N
    edge next(a: N, b: N)
>> SPAWN n0: N
   LINK next(#n0, SPAWN N AS n1)
   LINK next(#n1, SPAWN N AS n2)
   LINK next(#n2, SPAWN N AS n3)
   LINK next(#n3, SPAWN N AS n4)
   LINK next(#n4, SPAWN N AS n5)
   LINK next(#n5, SPAWN N AS n6)
   LINK next(#n6, SPAWN N AS n7)
   LINK next(#n7, SPAWN N AS n8)
   LINK next(#n8, SPAWN N AS n9)
   LINK next(#n9, SPAWN N AS n10)
   LINK next(#n10, SPAWN N AS n11)
   LINK next(#n11, SPAWN N AS n12)
   LINK next(#n12, SPAWN N AS n13)
   LINK next(#n13, SPAWN N AS n14)
   LINK next(#n14, SPAWN N AS n15)
   LINK next(#n15, SPAWN N AS n16)
   LINK next(#n16, SPAWN N AS n17)
   LINK next(#n17, SPAWN N AS n18)
   LINK next(#n18, SPAWN N AS n19)
   LINK next(#n19, SPAWN N AS n20)
   LINK next(#n20, SPAWN N AS n21)
   LINK next(#n21, SPAWN N AS n22)
   LINK next(#n22, SPAWN N AS n23)
   LINK next(#n23, SPAWN N AS n24)
   LINK next(#n24, SPAWN N AS n25)
   LINK next(#n25, SPAWN N AS n26)
   LINK next(#n26, SPAWN N AS n27)
   LINK next(#n27, SPAWN N AS n28)
   LINK next(#n28, SPAWN N AS n29)
   LINK next(#n29, SPAWN N AS n30)
   LINK next(#n30, SPAWN N AS n31)
   LINK next(#n31, SPAWN N AS n32)
   LINK next(#n32, SPAWN N AS n33)
   LINK next(#n33, SPAWN N AS n34)
   LINK next(#n34, SPAWN N AS n35)
   LINK next(#n35, SPAWN N AS n36)
   LINK next(#n36, SPAWN N AS n37)
   LINK next(#n37, SPAWN N AS n38)
   LINK next(#n38, SPAWN N AS n39)
   LINK next(#n39, SPAWN N AS n40)
   LINK next(#n40, SPAWN N AS n41)
   LINK next(#n41, SPAWN N AS n42)
   LINK next(#n42, SPAWN N AS n43)
   LINK next(#n43, SPAWN N AS n44)
   LINK next(#n44, SPAWN N AS n45)
   LINK next(#n45, SPAWN N AS n46)
   LINK next(#n46, SPAWN N AS n47)
   LINK next(#n47, SPAWN N AS n48)
   LINK next(#n48, SPAWN N AS n49)
   LINK next(#n49, SPAWN N AS n50)
   LINK next(#n50, SPAWN N AS n51)
   LINK next(#n51, SPAWN N AS n52)
   LINK next(#n52, SPAWN N AS n53)
   LINK next(#n53, SPAWN N AS n54)
   LINK next(#n54, SPAWN N AS n55)
   LINK next(#n55, SPAWN N AS n56)
   LINK next(#n56, SPAWN N AS n57)
   LINK next(#n57, SPAWN N AS n58)
   LINK next(#n58, SPAWN N AS n59)
   LINK next(#n59, SPAWN N AS n60)
   LINK next(#n60, SPAWN N AS n61)
   LINK next(#n61, SPAWN N AS n62)
   LINK next(#n62, SPAWN N AS n63)
   LINK next(#n63, SPAWN N AS n64)
   LINK next(#n64, SPAWN N AS n65)
   LINK next(#n65, SPAWN N AS n66)
   LINK next(#n66, SPAWN N AS n67)
   LINK next(#n67, SPAWN N AS n68)
   LINK next(#n68, SPAWN N AS n69)
   LINK next(#n69, SPAWN N AS n70)
   LINK next(#n70, SPAWN N AS n71)
   LINK next(#n71, SPAWN N AS n72)
   LINK next(#n72, SPAWN N AS n73)
   LINK next(#n73, SPAWN N AS n74)
   LINK next(#n74, SPAWN N AS n75)
   LINK next(#n75, SPAWN N AS n76)
   LINK next(#n76, SPAWN N AS n77)
   LINK next(#n77, SPAWN N AS n78)
   LINK next(#n78, SPAWN N AS n79)
   LINK next(#n79, SPAWN N AS n80)
   LINK next(#n80, SPAWN N AS n81)
   LINK next(#n81, SPAWN N AS n82)
   LINK next(#n82, SPAWN N AS n83)
   LINK next(#n83, SPAWN N AS n84)
   LINK next(#n84, SPAWN N AS n85)
   LINK next(#n85, SPAWN N AS n86)
   LINK next(#n86, SPAWN N AS n87)
   LINK next(#n87, SPAWN N AS n88)
   LINK next(#n88, SPAWN N AS n89)
   LINK next(#n89, SPAWN N AS n90)
   LINK next(#n90, SPAWN N AS n91)
   LINK next(#n91, SPAWN N AS n92)
   LINK next(#n92, SPAWN N AS n93)
   LINK next(#n93, SPAWN N AS n94)
   LINK next(#n94, SPAWN N AS n95)
   LINK next(#n95, SPAWN N AS n96)
   LINK next(#n96, SPAWN N AS n97)
   LINK next(#n97, SPAWN N AS n98)
   LINK next(#n98, SPAWN N AS n99)
   LINK next(#n99, SPAWN N AS n100)
   LINK next(#n100, SPAWN N AS n101)
   LINK next(#n101, SPAWN N AS n102)
> MATCH next+(#n0, x) RETURN COUNT(*)
100
warning: W3104
> MATCH next+(#n0, x) [depth: 200] RETURN COUNT(*)
102
no warnings
> MATCH next+(#n50, x) RETURN COUNT(*)
52
no warnings

=== 2.5.8 | a symmetric edge matches in either order; one stored edge is one row
.use world
>> SPAWN a: Person { key = "a" } SPAWN b: Person { key = "b" } LINK friend(#b, #a)
> MATCH friend(x, y) RETURN COUNT(*)
1
> MATCH friend(#a, x) RETURN x.key
"b"
> MATCH friend(x, #a) RETURN x.key
"b"
> MATCH friend(x, y) WHERE x.key = "a" RETURN y.key
"b"
> MATCH friend(x, y) WHERE y.key = "a" RETURN x.key
"b"
> MATCH x: Person, EXISTS_friend: Person WHERE friend(x, EXISTS_friend) RETURN x.key, EXISTS_friend.key
"a" | "b"
"b" | "a"
> MATCH x: Person WHERE EXISTS(friend(x, _)) RETURN x.key
"a"
"b"

=== 2.5.8 | friends of friends
.use world
>> SPAWN a: Person { key = "a" } SPAWN b: Person { key = "b" } SPAWN c: Person { key = "c" }
   LINK friend(#a, #b) LINK friend(#c, #b)
> MATCH friend(#a, x), friend(x, y) WHERE y != #a RETURN y.key
"c"
> MATCH friend+(#a, x) WHERE x != #a RETURN x.key
"b"
"c"

=== 2.5.8 | two symmetric edges between the same two, stored in opposite orders
.use world
>> SPAWN a: Person { key = "a" } SPAWN b: Person { key = "b" } LINK friend(#a, #b) LINK buddy(#b, #a)
> MATCH friend(x, y), buddy(x, y) RETURN x.key, y.key
"a" | "b"
> MATCH buddy(x, y), friend(x, y) RETURN COUNT(*)
1
> MATCH friend(x, y), friend(y, x) RETURN COUNT(*)
1

=== 2.5.9 | EXISTS sees outer variables, its own are local, and it nests
.use world
>> SPAWN a: Dog { key = "a" } SPAWN b: Dog { key = "b" } SPAWN c: Dog { key = "c", tricks = 1 }
   LINK likes(#a, #b) LINK likes(#b, #c)
> MATCH x: Dog WHERE EXISTS(likes(x, y)) RETURN x.key
"a"
"b"
> MATCH x: Dog WHERE NOT EXISTS(likes(x, y)) RETURN x.key
"c"
> MATCH x: Dog WHERE EXISTS(y: Dog, likes(x, y) WHERE y.tricks = 1) RETURN x.key
"b"
> MATCH x: Dog WHERE EXISTS(likes(x, y) WHERE EXISTS(likes(y, z) WHERE z.tricks = 1 AND z != x)) RETURN x.key
"a"
> MATCH x: Dog RETURN x.key, EXISTS(likes(_, x)), NOT EXISTS(likes(x, _))
"a" | false | false
"b" | true | false
"c" | true | true
> MATCH x: Dog WHERE EXISTS(y: Dog WHERE y.key = "zz") RETURN x
(nothing)

=== 2.5.9 | shadowing an outer name is an error, reading an inner one outside too
.use world
> MATCH x: Dog WHERE EXISTS(x: Dog) RETURN x
! E2005 Duplicate variable 'x'
> MATCH x: Dog WHERE EXISTS(likes(x, y)) RETURN y
! E2004 Unknown variable 'y'

=== 2.5.9 | a call named like an edge type is a test for that edge
.use world
>> SPAWN a: Dog { key = "a" } SPAWN b: Dog { key = "b" } LINK likes(#a, #b)
> MATCH x: Dog, y: Dog WHERE likes(x, y) RETURN x.key, y.key
"a" | "b"
> MATCH x: Dog WHERE NOT likes(x, _) RETURN x.key
"b"

=== 2.5.10 | an attribute that only some subtypes have is null for the others
.use world
>> SPAWN p: Person { key = "p", age = 3 } SPAWN s: Student { key = "s", school = "x" } SPAWN d: Dog { key = "d" }
> MATCH x: Being RETURN x.key, x.age, x.school
"p" | 3 | null
"s" | null | "x"
"d" | null | null
> MATCH x: any WHERE x.school = "x" RETURN x.key
"s"
> MATCH x: Being RETURN x.wings
! E2002 Unknown attribute 'wings' on type 'Being'

=== 2.5.10 | of a union all members must have it; an edge must declare it
.use world
>> SPAWN p: Person { key = "p" } SPAWN h: Place { key = "h" } LINK lives(#p, #h)
> MATCH x: Person | Place RETURN x.key
"p"
"h"
> MATCH x: Person | Place RETURN x.age
! E2002 Unknown attribute 'age' on type 'Place'
> MATCH lives(p, h) AS e RETURN e.since
! E2002 Unknown attribute 'since'

=== 2.5.11 | x:T is a test of the type, false for null and plain values
.use world
>> SPAWN p: Person { key = "p" } SPAWN s: Student { key = "s" } SPAWN d: Dog { key = "d" } LINK likes(#p, #d)
> MATCH x: Being RETURN x.key, x:Person, x:Student
"p" | true | false
"s" | true | true
"d" | false | false
> MATCH x: Being WHERE x:Dog RETURN x.key
"d"
> MATCH x: Student OPTIONAL MATCH likes(x, y) RETURN y:Dog
false
> MATCH x: Student RETURN x.key:Dog
false
> MATCH x: Being RETURN x:Nothing
! E2001 Unknown type 'Nothing'

=== 2.5.12 | the WHERE of an OPTIONAL MATCH filters only the optional part
.use world
>> SPAWN a: Dog { key = "a" } SPAWN b: Dog { key = "b" } SPAWN c: Dog { key = "c" }
   LINK likes(#a, #b) LINK likes(#a, #c)
> MATCH x: Dog OPTIONAL MATCH likes(x, y) WHERE y.key = "c" RETURN x.key, y.key
"a" | "c"
"b" | null
"c" | null
> MATCH x: Dog WHERE x.key = "a" OPTIONAL MATCH likes(x, y) RETURN x.key, y.key
"a" | "b"
"a" | "c"

=== 2.5.12 | an edge that an OPTIONAL MATCH names is null too
.use world
>> SPAWN a: Dog { key = "a" } SPAWN b: Dog { key = "b" } LINK likes(#a, #b) { how = 3 }
> MATCH x: Dog OPTIONAL MATCH likes(x, y) AS e RETURN x.key, e.how, e.id = null, e
rows: 2
> MATCH x: Dog OPTIONAL MATCH likes(x, y) AS e RETURN x.key, e.how
"a" | 3
"b" | null

=== 2.5.12 | a later OPTIONAL MATCH whose target is null does not match
.use world
>> SPAWN a: Dog { key = "a" } SPAWN b: Dog { key = "b" } SPAWN c: Dog { key = "c" }
   LINK likes(#a, #b) LINK likes(#b, #c)
> MATCH x: Dog OPTIONAL MATCH likes(x, y) OPTIONAL MATCH likes(y, z) RETURN x.key, y.key, z.key
"a" | "b" | "c"
"b" | "c" | null
"c" | null | null
> MATCH x: Dog OPTIONAL MATCH likes(x, y) OPTIONAL MATCH parent*(y, z) RETURN x.key, z.key
"a" | "b"
"b" | "c"
"c" | null
> MATCH x: Dog OPTIONAL MATCH likes(x, y) RETURN x.key, COUNT(y)
"a" | 1
"b" | 1
"c" | 0
