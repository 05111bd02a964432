-- Error codes, names and texts that no other file covers. The story runner checks that every error text has the
-- form "category: CODE NAME: text".

.ontology tasks
    node Task { title: String = "?", n: Int = 0 }
    edge next(a: Task, b: Task)

=== 2.12.E1001 | a syntax error underlines its place
> MATCH t Task RETURN t
! E1001 parse error: E1001 UNEXPECTED_TOKEN
! MATCH t Task RETURN t
! ^
! line 1, column
> FROB x
! E1001

=== 2.12.E1002 | a literal that means nothing
> MATCH () RETURN "a\q"
! E1002 INVALID_LITERAL

=== 2.12.E1003 | a text that is too long
.settings max_statement_characters = 40
> MATCH () RETURN "0123456789012345678901234567890123456789"
! E1003 INPUT_TOO_LARGE

=== 2.12.E1004 | nested too deeply
> MATCH () RETURN ((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((1))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))
! E1004 NESTED_TOO_DEEPLY

=== 2.12.E1005 | a character without meaning
> MATCH () RETURN 'x'
! E1005 double quotes

=== 2.12.E1101 | execute takes exactly one statement, a script any number
> MATCH () RETURN 1; MATCH () RETURN 2
! E1101 invalid statement type
>> MATCH () RETURN 1; MATCH () RETURN 2
2
> -- nothing but a comment
! E1101 empty

=== 2.12.E1102 | a statement that is not available here
.use tasks
> EXPLAIN COMMIT
! E1102 invalid statement type
> PROFILE TICK 5
! E1102 PROFILE is for
> MATCH () RETURN logical_time()
0

=== 2.12.E2001 | unknown types
.use tasks
> MATCH t: Tusk RETURN t
! E2001 analysis error: E2001 UNKNOWN_TYPE
! Unknown type 'Tusk'
> MATCH t: Task, linked(t, u) RETURN t
! E2001 edge type

=== 2.12.E2002 | unknown attributes
.use tasks
> MATCH t: Task RETURN t.name
! E2002 Unknown attribute 'name' on type 'Task'

=== 2.12.E2003 | types that do not fit, several mistakes at once
.use tasks
> MATCH t: Task WHERE t.n = "x" AND t.nothing > 1 RETURN upper(t.n)
! E2003 Invalid operator '='
! Unknown attribute 'nothing'
! upper()

=== 2.12.E2004 | unknown variables
> MATCH () RETURN x
! E2004 Unknown variable 'x'

=== 2.12.E2005 | names used twice
.use tasks
> MATCH t: Task, t: Task RETURN t
! E2005 Duplicate variable

=== 2.12.E2006 | unknown functions
> MATCH () RETURN frob(1)
! E2006 Unknown function

=== 2.12.E2007 | a wrong number of arguments or targets
.use tasks
> MATCH next(a, b, c) RETURN a
! E2007 arity
> LINK next(#a)
! E2007 arity

=== 2.12.E2009 | an expression that is not allowed here
.use tasks
> MATCH t: Task WHERE COUNT(*) > 1 RETURN t
! E2009

=== 2.12.E2010 | a declaration that cannot be
.define node N { a: Int [format: email] }
! E2010

=== 2.12.E2011 | a declaration that conflicts with existing data is rejected with a list
.use tasks
.define node Task { title: Int, n: Int [required] = 0, extra: Int? }
! E2011
! title
! 'n' was not required before
.define node Task { title: String = "?", n: Int = 0, extra: Int?, more: Int = 5 }
> SPAWN t: Task { extra = 1 }
> MATCH t: Task RETURN t.extra, t.more
1 | 5

=== 2.12.E2011 | elements that exist get the defaults of attributes that are added
.use tasks
> SPAWN t: Task { title = "old" }
.define node Task { title: String = "?", n: Int = 0, extra: Int?, more: Int = 5 }
> MATCH t: Task RETURN t.title, t.n, t.extra, t.more
"old" | 0 | null | 5

=== 2.12.E2101 | division by zero
.use tasks
> SPAWN t: Task { n = 1 / 0 }
! E2101 query error: E2101 DIVISION_BY_ZERO: Division by zero

=== 2.12.E2102 | an argument that cannot be used
> MATCH () RETURN timestamp("x")
! E2102 INVALID_ARGUMENT

=== 2.12.E2103 | a statement that looks at too much
.settings max_statement_work = 50
.use tasks
>> SPAWN t: Task SPAWN u: Task SPAWN v: Task SPAWN w: Task
> MATCH a: Task, b: Task, c: Task RETURN COUNT(*)
! E2103 candidates
> MATCH a: Task RETURN COUNT(*)
4

=== 2.12.E3002 | required
.define node N { a: Int [required] }
> SPAWN n: N
! E3002 constraint violation: E3002 REQUIRED
! required

=== 2.12.E3003 | unique
.define node N { a: Int [unique] }
> SPAWN n: N { a = 1 }
> SPAWN m: N { a = 1 }
! E3003 constraint violation: E3003 UNIQUE
! unique

=== 2.12.E3004 | readonly
.define node N { a: Int [readonly] }
> SPAWN n: N { a = 1 }
> SET #n.a = 2
! E3004 constraint violation: E3004 READONLY
! readonly

=== 2.12.E3005, 2.12.E3006, 2.12.E3007, 2.12.E3008, 2.12.E3009 | value modifiers
.define
    node N { a: Int? [<= 1], b: Int? [in: [1]], c: String? [length: 1..2], d: String? [match: "x"], e: String? [format: slug] }
> SPAWN n: N { a = 2 }
! E3005 constraint violation: E3005 OUT_OF_RANGE
> SPAWN n: N { b = 2 }
! E3006 constraint violation: E3006 NOT_IN_LIST
> SPAWN n: N { c = "" }
! E3007 constraint violation: E3007 LENGTH
> SPAWN n: N { d = "y" }
! E3008 constraint violation: E3008 NO_MATCH
> SPAWN n: N { e = "Y" }
! E3009 constraint violation: E3009 FORMAT

=== 2.12.E3013 | null where the type does not have it
.define node N { a: Int = 1 }
> SPAWN n: N { a = null }
! E3013 constraint violation: E3013 NOT_NULL

=== 2.12.E3101, 2.12.E3102, 2.12.E3103 | transitive patterns
.use tasks
.define edge three(a: Task, b: Task, c: Task)
> MATCH next+(a, b) [depth: 0] RETURN a
! E3101 pattern error: E3101 INVALID_DEPTH
> MATCH next+(a, b) AS p RETURN a
! E3102 pattern error: E3102 INVALID_PATTERN
> MATCH three+(a, b, c) RETURN a
! E3103 pattern error: E3103 NOT_BINARY

=== 2.12.E3303 | a cascade more than 100 levels deep
.define
    node N
    edge in(a: N, b: N) [on_kill_source: cascade]
>> SPAWN n0: N
   LINK in(#n0, SPAWN N AS n1)
   LINK in(#n1, SPAWN N AS n2)
   LINK in(#n2, SPAWN N AS n3)
   LINK in(#n3, SPAWN N AS n4)
   LINK in(#n4, SPAWN N AS n5)
   LINK in(#n5, SPAWN N AS n6)
   LINK in(#n6, SPAWN N AS n7)
   LINK in(#n7, SPAWN N AS n8)
   LINK in(#n8, SPAWN N AS n9)
   LINK in(#n9, SPAWN N AS n10)
   LINK in(#n10, SPAWN N AS n11)
   LINK in(#n11, SPAWN N AS n12)
   LINK in(#n12, SPAWN N AS n13)
   LINK in(#n13, SPAWN N AS n14)
   LINK in(#n14, SPAWN N AS n15)
   LINK in(#n15, SPAWN N AS n16)
   LINK in(#n16, SPAWN N AS n17)
   LINK in(#n17, SPAWN N AS n18)
   LINK in(#n18, SPAWN N AS n19)
   LINK in(#n19, SPAWN N AS n20)
   LINK in(#n20, SPAWN N AS n21)
   LINK in(#n21, SPAWN N AS n22)
   LINK in(#n22, SPAWN N AS n23)
   LINK in(#n23, SPAWN N AS n24)
   LINK in(#n24, SPAWN N AS n25)
   LINK in(#n25, SPAWN N AS n26)
   LINK in(#n26, SPAWN N AS n27)
   LINK in(#n27, SPAWN N AS n28)
   LINK in(#n28, SPAWN N AS n29)
   LINK in(#n29, SPAWN N AS n30)
   LINK in(#n30, SPAWN N AS n31)
   LINK in(#n31, SPAWN N AS n32)
   LINK in(#n32, SPAWN N AS n33)
   LINK in(#n33, SPAWN N AS n34)
   LINK in(#n34, SPAWN N AS n35)
   LINK in(#n35, SPAWN N AS n36)
   LINK in(#n36, SPAWN N AS n37)
   LINK in(#n37, SPAWN N AS n38)
   LINK in(#n38, SPAWN N AS n39)
   LINK in(#n39, SPAWN N AS n40)
   LINK in(#n40, SPAWN N AS n41)
   LINK in(#n41, SPAWN N AS n42)
   LINK in(#n42, SPAWN N AS n43)
   LINK in(#n43, SPAWN N AS n44)
   LINK in(#n44, SPAWN N AS n45)
   LINK in(#n45, SPAWN N AS n46)
   LINK in(#n46, SPAWN N AS n47)
   LINK in(#n47, SPAWN N AS n48)
   LINK in(#n48, SPAWN N AS n49)
   LINK in(#n49, SPAWN N AS n50)
   LINK in(#n50, SPAWN N AS n51)
   LINK in(#n51, SPAWN N AS n52)
   LINK in(#n52, SPAWN N AS n53)
   LINK in(#n53, SPAWN N AS n54)
   LINK in(#n54, SPAWN N AS n55)
   LINK in(#n55, SPAWN N AS n56)
   LINK in(#n56, SPAWN N AS n57)
   LINK in(#n57, SPAWN N AS n58)
   LINK in(#n58, SPAWN N AS n59)
   LINK in(#n59, SPAWN N AS n60)
   LINK in(#n60, SPAWN N AS n61)
   LINK in(#n61, SPAWN N AS n62)
   LINK in(#n62, SPAWN N AS n63)
   LINK in(#n63, SPAWN N AS n64)
   LINK in(#n64, SPAWN N AS n65)
   LINK in(#n65, SPAWN N AS n66)
   LINK in(#n66, SPAWN N AS n67)
   LINK in(#n67, SPAWN N AS n68)
   LINK in(#n68, SPAWN N AS n69)
   LINK in(#n69, SPAWN N AS n70)
   LINK in(#n70, SPAWN N AS n71)
   LINK in(#n71, SPAWN N AS n72)
   LINK in(#n72, SPAWN N AS n73)
   LINK in(#n73, SPAWN N AS n74)
   LINK in(#n74, SPAWN N AS n75)
   LINK in(#n75, SPAWN N AS n76)
   LINK in(#n76, SPAWN N AS n77)
   LINK in(#n77, SPAWN N AS n78)
   LINK in(#n78, SPAWN N AS n79)
   LINK in(#n79, SPAWN N AS n80)
   LINK in(#n80, SPAWN N AS n81)
   LINK in(#n81, SPAWN N AS n82)
   LINK in(#n82, SPAWN N AS n83)
   LINK in(#n83, SPAWN N AS n84)
   LINK in(#n84, SPAWN N AS n85)
   LINK in(#n85, SPAWN N AS n86)
   LINK in(#n86, SPAWN N AS n87)
   LINK in(#n87, SPAWN N AS n88)
   LINK in(#n88, SPAWN N AS n89)
   LINK in(#n89, SPAWN N AS n90)
   LINK in(#n90, SPAWN N AS n91)
   LINK in(#n91, SPAWN N AS n92)
   LINK in(#n92, SPAWN N AS n93)
   LINK in(#n93, SPAWN N AS n94)
   LINK in(#n94, SPAWN N AS n95)
   LINK in(#n95, SPAWN N AS n96)
   LINK in(#n96, SPAWN N AS n97)
   LINK in(#n97, SPAWN N AS n98)
   LINK in(#n98, SPAWN N AS n99)
   LINK in(#n99, SPAWN N AS n100)
   LINK in(#n100, SPAWN N AS n101)
   LINK in(#n101, SPAWN N AS n102)
> KILL #n0
! E3303 deep
> KILL #n5
deleted 98, unlinked 98
> KILL #n0
deleted 5, unlinked 4

=== 2.12.E3304 | a cascade to more than 10,000 elements
.define
    node N
    node X
    edge in(a: N, b: X) [on_kill_source: cascade]
>> SPAWN a0: N SPAWN a1: N SPAWN a2: N SPAWN a3: N SPAWN a4: N SPAWN a5: N SPAWN a6: N SPAWN a7: N SPAWN a8: N SPAWN a9: N
> MATCH a: N, b: N, c: N, d: N SPAWN x: X LINK in(#a0, x)
created 10000, linked 10000
> KILL #a0
! E3304 10,000
> MATCH a: X RETURN COUNT(*)
10000

=== 2.12.E3601 | not found
> KILL #x
! E3601 mutation error: E3601 NOT_FOUND
! not found

=== 2.12.E3603 | a node where an edge is asked for
.use tasks
> SPAWN t: Task
> UNLINK #t
! E3603 mutation error: E3603 INVALID_TARGET

=== 2.12.E5001, 2.12.E5004, 2.12.E5005, 2.12.E5006, 2.12.E5008 | the state of a transaction
.use tasks
> COMMIT
! E5004 transaction error: E5004 NO_TRANSACTION: no transaction is active
> ROLLBACK
! E5004 no transaction is active
> SAVEPOINT s
! E5004 no transaction is active
> BEGIN
> BEGIN
! E5001 transaction error: E5001 TRANSACTION_ALREADY_ACTIVE
! transaction already active
> ROLLBACK
> BEGIN
> ROLLBACK TO nowhere
! E5006 transaction error: E5006 UNKNOWN_SAVEPOINT: Savepoint 'nowhere' does not exist
> SPAWN t: Task
! E5005 transaction error: E5005 TRANSACTION_ABORTED
> ROLLBACK
> END SESSION
! E5008 SESSION_NOT_STARTED

=== 2.12.E5002 | a conflict, which may be tried again
.use tasks
> SPAWN t: Task
> BEGIN
> SET #t.n = 1
.params {"t": "#t"}
b> SET #$t.n = 2
> COMMIT
! E5002 transaction error: E5002 CONFLICT

=== 2.12.E7001, 2.12.E7002, 2.12.E7004 | permission
.use tasks
.define
    policy look: ON MATCH(_) ALLOW IF true
    policy odd: ON SET(t: Task, _) ALLOW IF 1 / t.n > 0
> SPAWN t: Task
> KILL #self
! E7002 policy error: E7002 NO_ACTOR_BOUND
> BEGIN SESSION AS #t
> SPAWN u: Task
! E7001 policy error: E7001 PERMISSION_DENIED: Permission denied
> SET #t.n = 1
! E7004 policy error: E7004 POLICY_EVAL_ERROR: Permission denied
!not zero

=== 2.12.E9001 | ticks
> TICK 0
! E9001 time error: E9001 INVALID_TICK_AMOUNT
> TICK -1
! E9001
.params {"n": 0}
> TICK $n
! E9001

=== 2.12.E9021, 5.C21 | rules that call each other without end
.define
    node A { n: Int = 0 }
    rule grow: a: A => SPAWN b: A { n = a.n + 1 }
> SPAWN a: A
! E9021 rule error: E9021 RULE_DEPTH_EXCEEDED
> MATCH a: A RETURN COUNT(*)
0

=== 2.12.E9022 | rules that do too much
.define
    node A { n: Int = 0 }
    rule wide: a: A, b: A, c: A => SET a.n = 1
> BEGIN
>> SPAWN a: A SPAWN a: A SPAWN a: A SPAWN a: A SPAWN a: A SPAWN a: A SPAWN a: A SPAWN a: A SPAWN a: A SPAWN a: A SPAWN a: A
   SPAWN a: A SPAWN a: A SPAWN a: A SPAWN a: A SPAWN a: A SPAWN a: A SPAWN a: A SPAWN a: A SPAWN a: A SPAWN a: A SPAWN a: A
> COMMIT
! E9022 10,000
> MATCH a: A RETURN COUNT(*)
0
