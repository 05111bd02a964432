-- Null and Boolean logic

.ontology things
    node Thing { key: Int, n: Int?, m: Int?, s: String?, flag: Bool? }
    edge after(a: Thing, b: Thing)

=== 2.3.1 | equality with null has two values
> MATCH () RETURN null = null, null != null, null = 1, null != 1, 1 = null, 1 != null
true | false | false | true | false | true

=== 2.3.1 | IS NULL is the same as = null
.use things
>> SPAWN a: Thing { key = 1 }
   SPAWN b: Thing { key = 2, n = 5 }
> MATCH t: Thing WHERE t.n IS NULL RETURN t.key
1
> MATCH t: Thing WHERE t.n = null RETURN t.key
1
> MATCH t: Thing WHERE t.n IS NOT NULL RETURN t.key
2
> MATCH t: Thing WHERE t.n != null RETURN t.key
2
> MATCH t: Thing WHERE t.n != 5 RETURN t.key
1
.params {"p": null}
> MATCH t: Thing WHERE t.n = $p RETURN t.key
1

=== 2.3.1 | two nulls are equal in a join too, however it is planned
.use things
>> SPAWN a: Thing { key = 1 }
   SPAWN b: Thing { key = 2 }
   SPAWN c: Thing { key = 3, n = 5, m = 5 }
> MATCH x: Thing, y: Thing WHERE x.n = y.n RETURN x.key, y.key
1 | 1
1 | 2
2 | 1
2 | 2
3 | 3
> MATCH x: Thing, y: Thing WHERE x.n = y.m AND x.key = 1 RETURN y.key
1
2

=== 2.3.1 | null is legal only where the type is optional
.define node N { n: Int = 1, r: Int [required] }
> SPAWN x: N { n = null, r = 1 }
! E3013 null
> SPAWN x: N { r = null }
! E3002 required

=== 2.3.2 | arithmetic, joining texts, functions and attributes of null are null
.use things
> SPAWN a: Thing { key = 1 }
> MATCH t: Thing RETURN t.n + 1, t.n * t.m, -t.n, t.s ++ "x", upper(t.s), length(t.s), abs(t.n)
null | null | null | null | null | null | null
> MATCH t: Thing OPTIONAL MATCH after(t, u) RETURN u.key, u.s ++ "x"
null | null

=== 2.3.2 | coalesce stops at the first value that is not null
.use things
> SPAWN a: Thing { key = 1 }
> MATCH t: Thing RETURN COALESCE(t.n, t.m, 3, 1 / 0), t.n ?? t.m ?? 4, t.key ?? 1 / 0, COALESCE(t.n, t.m)
3 | 4 | 1 | null

=== 2.3.3 | order comparisons with null are null, and WHERE takes null for false
.use things
>> SPAWN a: Thing { key = 1 }
   SPAWN b: Thing { key = 2, n = 5 }
> MATCH t: Thing RETURN t.key, t.n < 9, t.n >= 0 ORDER BY t.key
1 | null | null
2 | true | true
> MATCH t: Thing WHERE t.n < 9 RETURN t.key
2
> MATCH t: Thing WHERE NOT (t.n < 9) RETURN t.key
(nothing)

=== 2.3.3, 5.C1 | AND, OR and NOT are Kleene's
.use things
> SPAWN a: Thing { key = 1 }
> MATCH t: Thing RETURN t.flag AND true, t.flag AND false, false AND t.flag, t.flag AND t.flag
null | false | false | null
> MATCH t: Thing RETURN t.flag OR true, true OR t.flag, t.flag OR false, NOT t.flag
true | true | null | null

=== 2.3.4 | AND and OR stop as soon as the answer is known
.use things
> SPAWN a: Thing { key = 0 }
> MATCH t: Thing WHERE t.key != 0 AND 10 / t.key > 1 RETURN t
(nothing)
> MATCH t: Thing WHERE t.key = 0 OR 10 / t.key > 1 RETURN t.key
0
> MATCH t: Thing RETURN t.key != 0 AND 10 / t.key > 1, t.key = 0 OR 10 / t.key > 1
false | true

=== 2.3.4 | short circuit applies also when the guard is more expensive
.use things
> SPAWN a: Thing { key = 0 }
> MATCH t: Thing WHERE EXISTS(after(t, _)) AND 10 / t.key > 1 RETURN t
(nothing)
> MATCH t: Thing, u: Thing WHERE t.key + u.key + t.key != 0 AND 10 / t.key > 1 RETURN t
(nothing)
> MATCH t: Thing WHERE t.key != 0 MATCH u: Thing WHERE u.key = 10 / t.key RETURN u
(nothing)

=== 2.3.4 | conditions must be Bool
.use things
> MATCH t: Thing WHERE t.key RETURN t
! E2003 Bool
> MATCH t: Thing WHERE NOT t.key RETURN t
! E2003 Bool
> MATCH t: Thing WHERE t.key = 1 AND t.s RETURN t
! E2003 Invalid operator 'AND' for types Bool and String

=== 2.3.5 | a constraint whose condition is null is violated
.define
    node Range { low: Int?, high: Int? }
    constraint ordered: r: Range => r.low <= r.high
> SPAWN a: Range { low = 1, high = 2 }
> SPAWN b: Range { low = 1 }
! E3001 constraint violation
! Constraint 'ordered' violated
> MATCH r: Range RETURN COUNT(*)
1

=== 2.3.5 | value modifiers skip null
.define node N { n: Int? [>= 1, <= 5], s: String? [length: 2..3, match: "a.*"], m: String? [format: email] }
> SPAWN a: N { n = null, s = null, m = null }
created 1
