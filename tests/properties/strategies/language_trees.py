"""Hypothesis strategies for every syntax tree that the parser builds."""

from __future__ import annotations

import string
from datetime import UTC, datetime
from typing import Any

from hypothesis import strategies as st

from vedette.language.syntax import declarations as d
from vedette.language.syntax import expressions as x
from vedette.language.syntax import statements as s
from vedette.language.syntax.grammar import NON_CALLABLE_KEYWORDS, RESERVED_KEYWORDS
from vedette.values import INT_MAX, INT_MIN, duration_from_ms, timestamp_from_ms, timestamp_to_ms

__all__ = ["declarations", "expressions", "options", "statements"]

Strategy = st.SearchStrategy[Any]

# Words and values

_FIRST, _LATER = string.ascii_letters + "_", string.ascii_letters + string.digits + "_"
_WORDS = st.builds(str.__add__, st.sampled_from(_FIRST), st.text(_LATER, max_size=6))
_KEYWORDS = st.sampled_from(sorted(word.lower() for word in RESERVED_KEYWORDS))
_AGGREGATES = st.sampled_from(["COUNT", "sum", "Avg", "MIN", "max", "COLLECT", "collect"])

names = _WORDS | _KEYWORDS
identifiers = _WORDS.filter(lambda word: word != "_" and word.upper() not in RESERVED_KEYWORDS)
qualified_names = names | st.builds("{}::{}".format, names, names)
type_names = qualified_names.filter(lambda name: name.upper() != "ANY")
qualified_identifiers = identifiers | st.builds("{}::{}".format, identifiers, names)
callables = qualified_identifiers | _KEYWORDS.filter(lambda word: word.upper() not in NON_CALLABLE_KEYWORDS)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)

_MOMENTS = st.integers(
    timestamp_to_ms(datetime(1, 1, 1, tzinfo=UTC)), timestamp_to_ms(datetime(9999, 12, 31, tzinfo=UTC))
)
integers = st.integers(0, INT_MAX)
floats = st.floats(min_value=0, allow_infinity=False, allow_nan=False)
values = st.one_of(
    texts,
    integers,
    st.just(INT_MIN),
    floats,
    st.booleans(),
    st.none(),
    _MOMENTS.map(timestamp_from_ms),
    st.integers(0, 86_400_000 * 999_999_999).map(duration_from_ms),
)


def several(strategy: Strategy, least: int = 0, most: int = 3) -> Strategy:
    return st.lists(strategy, min_size=least, max_size=most).map(tuple)


def perhaps(strategy: Strategy) -> Strategy:
    return st.none() | strategy


# Types, patterns, expressions

_PLAIN_TYPES = st.one_of(
    st.builds(x.NamedType, type_names),
    st.builds(x.AnyType),
    st.builds(x.EdgeReferenceType, perhaps(type_names)),
)


def _flat_union(members: tuple[x.TypeExpression, ...]) -> x.UnionType:
    flat: list[x.TypeExpression] = []
    for member in members:
        flat.extend(member.members if isinstance(member, x.UnionType) else (member,))
    return x.UnionType(tuple(flat))


types: Strategy = st.recursive(
    _PLAIN_TYPES,
    lambda inner: st.one_of(
        st.builds(x.OptionalType, inner.filter(lambda kind: not isinstance(kind, x.OptionalType))),
        several(inner, 2).map(_flat_union),
    ),
    max_leaves=4,
)
parameters = st.builds(x.Parameter, names, st.booleans())
ids = st.one_of(
    st.builds(x.IdReference, names | integers.map(str)),
    st.builds(x.IdReference, texts, st.just(value=True)),
    st.builds(x.IdReference, st.builds(x.Parameter, names)),
)
variables = st.builds(x.Variable, identifiers)
literals = st.builds(x.Literal, values)
_LEAVES = literals | variables | parameters | ids


def _calls(inner: Strategy) -> Strategy:
    plain = callables.filter(lambda name: name.upper() not in x.AGGREGATE_FUNCTIONS)
    return st.builds(x.Call, plain, several(inner)) | st.builds(
        x.Call, _AGGREGATES, st.just(()) | several(inner, 2)
    )


def _targets(inner: Strategy) -> Strategy:
    return several(variables | ids | parameters | _calls(inner) | st.builds(x.Wildcard), 1)


def _edges(inner: Strategy) -> Strategy:
    depths = st.just((None, None)) | st.tuples(perhaps(integers), integers)
    plain = st.builds(
        lambda edge, targets, alias, depth: x.EdgePattern(edge, targets, alias, None, *depth),
        callables,
        _targets(inner),
        perhaps(identifiers),
        depths,
    )
    repeated = st.builds(
        lambda edge, targets, alias, repeat, depth: x.EdgePattern(edge, targets, alias, repeat, *depth),
        qualified_identifiers,
        _targets(inner),
        perhaps(identifiers),
        st.sampled_from("+*"),
        depths,
    )
    return plain | repeated


def _bound(inner: Strategy) -> Strategy:
    reference = st.builds(
        lambda edge, targets, alias: x.EdgePattern(edge, targets, alias, written_as_reference=True),
        perhaps(type_names),
        _targets(inner),
        identifiers,
    )
    return st.builds(x.NodePattern, identifiers, types) | reference


def _patterns(inner: Strategy) -> Strategy:
    return st.builds(x.Pattern, several(_bound(inner) | _edges(inner)))


def _bound_patterns(inner: Strategy) -> Strategy:
    elements = st.tuples(_bound(inner), several(_edges(inner), 0, 1)).map(lambda pair: (pair[0], *pair[1]))
    return st.builds(x.Pattern, elements)


def _limited(aggregate: Any, limit: int | None) -> Any:
    if aggregate.name.upper() != "COLLECT":
        return aggregate
    if isinstance(aggregate, x.PatternAggregate):
        return x.PatternAggregate(aggregate.name, aggregate.pattern, aggregate.where, limit)
    return x.Aggregate(aggregate.name, aggregate.operand, aggregate.distinct, aggregate.where, limit)


def _aggregates(inner: Strategy) -> Strategy:
    kinds = st.one_of(
        st.builds(x.Aggregate, _AGGREGATES, st.none()),
        st.builds(x.Aggregate, _AGGREGATES, inner, st.booleans(), perhaps(inner)),
        st.builds(x.PatternAggregate, _AGGREGATES, _bound_patterns(inner), perhaps(inner)),
    )
    return st.builds(_limited, kinds, perhaps(st.just(-1) | integers))


_OPERATORS = "OR;AND;=;!=;<;<=;>;>=;+;-;++;*;/;%;??;IN;CONTAINS;STARTS WITH;ENDS WITH".split(";")


def _compound(inner: Strategy) -> Strategy:
    return st.one_of(
        st.builds(x.Binary, st.sampled_from(_OPERATORS), inner, inner),
        st.builds(x.Unary, st.sampled_from(["NOT", "-", "IS NULL", "IS NOT NULL"]), inner),
        st.builds(x.Attribute, inner, names),
        st.builds(x.TypeTest, inner, qualified_names),
        st.builds(x.ListLiteral, several(inner)),
        _calls(inner),
        _aggregates(inner),
        st.builds(x.Exists, _patterns(inner), perhaps(inner)),
    )


expressions: Strategy = st.recursive(_LEAVES, _compound, max_leaves=8)
_SMALL: Strategy = st.recursive(_LEAVES, _compound, max_leaves=3)
patterns = _patterns(_SMALL)

# Statements

_PROJECTION = st.builds(x.Projection, _SMALL, perhaps(names)) | st.builds(x.Projection, st.none())
projections = several(_PROJECTION, 1)
order_terms = st.builds(x.OrderTerm, _SMALL, st.booleans())
_COUNTS = st.builds(x.Literal, integers) | parameters
_NEGATIVE_COUNTS = st.builds(x.Unary, st.just("-"), st.builds(x.Literal, integers)) | st.just(
    x.Literal(INT_MIN)
)
_BLOCKS = st.builds(s.MatchBlock, patterns, perhaps(expressions))
_RETURNS = st.builds(
    s.Return, projections, st.booleans(), several(order_terms), perhaps(_COUNTS), perhaps(_COUNTS)
)
_HEADS = (several(_BLOCKS, 1, 2), several(_BLOCKS, 0, 1))
matches = st.builds(s.Match, *_HEADS, _RETURNS)
_SUBQUERIES = st.builds(s.Subquery, matches)
_ENDPOINTS = st.builds(s.EdgesByTargets, callables, _targets(_SMALL))
_ELEMENTS = ids | variables | _SUBQUERIES | _ENDPOINTS
_ASSIGNMENTS = st.builds(s.Assignment, names, _SMALL)
_RETURN_ITEMS = st.builds(s.ReturningItem, names, perhaps(names), perhaps(names)) | st.builds(
    s.ReturningItem, st.just("count(*)"), st.none(), perhaps(names)
)
_RETURNINGS = perhaps(st.builds(s.Returning, several(_RETURN_ITEMS)))


def _spawn_items(variable: Strategy) -> Strategy:
    return st.builds(s.SpawnItem, variable, types, several(_ASSIGNMENTS))


actions = st.one_of(
    st.builds(s.Spawn, several(_spawn_items(identifiers), 1), _RETURNINGS),
    st.builds(s.Kill, _ELEMENTS, perhaps(st.booleans()), _RETURNINGS),
    st.builds(
        s.Link,
        qualified_names.filter(lambda name: name.upper() != "IF"),
        several(_SMALL | _SUBQUERIES | _spawn_items(perhaps(identifiers)), 1),
        perhaps(identifiers),
        several(_ASSIGNMENTS),
        st.booleans(),
        _RETURNINGS,
    ),
    st.builds(s.Unlink, _ELEMENTS, _RETURNINGS),
    st.builds(s.Set, _ELEMENTS, several(_ASSIGNMENTS, 1, 1), st.just(value=False), _RETURNINGS),
    st.builds(s.Set, _ELEMENTS, several(_ASSIGNMENTS), st.just(value=True), _RETURNINGS),
)

_LOWER = names.map(str.lower)
_BARE = _LOWER.filter(lambda word: word not in ("true", "false", "null"))
_OPTION_VALUES = st.builds(s.OptionValue, _BARE) | st.builds(
    s.OptionValue, _BARE.filter(lambda word: word not in ("not", "exists")), several(order_terms, 1)
)


def _option(name: str, value: Any) -> s.WatchOption:
    """`filter` and `serialize_by` accept expressions only."""
    if name in ("filter", "serialize_by") and isinstance(value, s.OptionValue):
        return s.WatchOption(name, x.Variable("v"))
    return s.WatchOption(name, value)


_OPTION_NAMES = _LOWER | st.sampled_from(["mode", "filter", "serialize_by", "depth", "limit"])
_OPTION = st.builds(_option, _OPTION_NAMES, perhaps(_OPTION_VALUES | _SMALL))
options = several(_OPTION, 1)


def _watch(where: Any, name: str | None, returns: s.Return | None, **rest: Any) -> s.Watch:
    """The alias of the last column is the name of the watch, unless the statement has another name."""
    implied = returns.projections[-1].alias if returns else None
    return s.Watch(where=where, returns=returns, name=name or implied, **rest)


_WATCH_RETURNS = st.builds(s.Return, projections, st.booleans())
_WATCH_PARTS = {"pattern": patterns, "where": perhaps(expressions), "options": st.just(()) | options}
watches = st.one_of(
    st.builds(
        _watch,
        name=perhaps(identifiers),
        returns=_WATCH_RETURNS,
        actions=several(actions, 0, 2),
        **_WATCH_PARTS,
    ),
    st.builds(
        _watch, name=perhaps(identifiers), returns=st.none(), actions=several(actions, 1, 2), **_WATCH_PARTS
    ),
)
_DELIVERIES = st.builds(x.Literal, texts) | parameters | ids
_ROWS = ids | variables | st.builds(x.Attribute, variables, st.sampled_from(["id", "ID"]))
_VERBS = st.sampled_from(["PAUSE", "RESUME", "CANCEL"])


def _managements(handles: Strategy) -> Strategy:
    return st.builds(s.ManageWatch, _VERBS, handles) | st.builds(s.AlterWatch, handles, options)


_PLAIN = st.one_of(
    matches,
    st.builds(s.MatchMutate, *_HEADS, several(actions, 1)),
    st.builds(s.MatchManage, *_HEADS, _managements(_ROWS)),
    actions,
    watches,
    st.builds(s.Inspect, ids, st.just(()) | projections),
    st.builds(s.Begin, st.sampled_from([None, "READ COMMITTED", "SERIALIZABLE"])),
    st.builds(s.Commit),
    st.builds(s.Rollback, perhaps(identifiers)),
    st.builds(s.Savepoint, identifiers),
    st.builds(s.BeginSession, ids | variables),
    st.builds(s.EndSession),
    st.builds(s.Tick, perhaps(_COUNTS | _NEGATIVE_COUNTS)),
    st.builds(s.Trigger, names, perhaps(expressions)),
    st.builds(s.Ack, _DELIVERIES),
    st.builds(s.Nack, _DELIVERIES, st.just(()) | options),
    st.builds(s.Extend, _DELIVERIES, st.just(()) | options),
    st.builds(s.Redrive, _DELIVERIES),
    st.builds(s.Redrive, ids, st.just(value=True)),
    _managements(ids),
)
statements: Strategy = st.one_of(_PLAIN, st.builds(s.Explain, _PLAIN), st.builds(s.Profile, _PLAIN))

# Declarations

_NUMBERS = st.integers(INT_MIN, INT_MAX) | st.floats(allow_infinity=False, allow_nan=False)
_DOC_LINES = st.text(string.ascii_letters + " -*/\"'", max_size=12).map(str.rstrip)
_DOCS = perhaps(st.lists(_DOC_LINES, min_size=1, max_size=2).map("\n".join))
modifiers = st.one_of(
    st.builds(d.Modifier, st.sampled_from(["required", "unique", "readonly", "indexed"])),
    st.builds(d.Modifier, st.just("indexed"), st.sampled_from(["asc", "desc"])),
    st.builds(d.Modifier, st.sampled_from([">=", "<=", ">", "<"]), _NUMBERS),
    st.builds(d.Modifier, st.just("range"), st.tuples(_NUMBERS, _NUMBERS)),
    st.builds(d.Modifier, st.just("in"), several(_SMALL)),
    st.builds(d.Modifier, st.just("length"), st.tuples(integers, integers)),
    st.builds(d.Modifier, st.just("match"), texts),
    st.builds(d.Modifier, st.just("format"), names),
)
_ATTRIBUTES = several(
    st.builds(d.AttributeDeclaration, names, types, several(modifiers), perhaps(_SMALL), _DOCS)
)
_KILLS = st.sampled_from(["on_kill_source", "on_kill_target"])
_EDGE_MODIFIERS = st.one_of(
    st.builds(d.Modifier, st.sampled_from(["symmetric", "no_self", "acyclic", "unique", "indexed"])),
    st.builds(d.Modifier, st.just("cardinality"), st.tuples(names, integers, perhaps(integers))),
    st.builds(d.Modifier, _KILLS, st.sampled_from(["cascade", "unlink", "prevent"])),
)
_NODE_MODIFIERS = st.frozensets(st.sampled_from(["abstract", "sealed", "singleton", "extension-point"]))
_PARAMETERS = several(st.builds(d.EdgeParameter, names, types), 1)
_EDGE_NAMES = names.filter(lambda name: name.upper() not in NON_CALLABLE_KEYWORDS)
_RULE_TARGETS = several(variables | ids | parameters | _calls(_SMALL), 1)
_RULE_ACTIONS = st.one_of(
    st.builds(s.Spawn, several(_spawn_items(identifiers), 1, 1)),
    st.builds(s.Kill, variables),
    st.builds(s.Unlink, variables),
    st.builds(s.Set, variables, several(_ASSIGNMENTS, 1, 1)),
    st.builds(s.Link, qualified_names, _RULE_TARGETS, perhaps(identifiers), several(_ASSIGNMENTS)),
)
_ARGUMENT_NAMES = names.filter(lambda name: name != "_")
_ARGUMENTS = st.tuples(_ARGUMENT_NAMES, perhaps(types))


def _operation(operation: str, first: Any, attribute: str | None, second: Any) -> d.OperationPattern:
    variable, type_ = first or (None, None)
    return d.OperationPattern(operation, variable, type_, attribute, second)


_OPERATIONS = st.sampled_from("SPAWN;KILL;LINK;UNLINK;SET;MATCH;META SPAWN;META SET".split(";"))
_OPERATION_PATTERNS = st.one_of(
    st.just(d.OperationPattern("*")),
    st.builds(_operation, _OPERATIONS, perhaps(_ARGUMENTS), perhaps(names), perhaps(_ARGUMENTS)),
    st.builds(_operation, _OPERATIONS, perhaps(_ARGUMENTS), texts, st.none()),
)
_PRIORITIES = st.integers(-1000, 1000)


def _alias(name: str, type_: Any, given: tuple[d.Modifier, ...], doc: str | None) -> d.AliasDeclaration:
    return d.AliasDeclaration(name, type_, () if isinstance(type_, x.UnionType) else given, doc)


_DECLARATIONS = st.one_of(
    st.builds(
        _alias, names, types, several(modifiers | st.builds(d.Modifier, st.just("default"), _SMALL)), _DOCS
    ),
    st.builds(d.NodeDeclaration, names, several(qualified_names), _ATTRIBUTES, _NODE_MODIFIERS, _DOCS),
    st.builds(d.EdgeDeclaration, _EDGE_NAMES, _PARAMETERS, _ATTRIBUTES, several(_EDGE_MODIFIERS), _DOCS),
    st.builds(
        d.ConstraintDeclaration,
        names,
        patterns,
        _SMALL,
        perhaps(_SMALL),
        st.booleans(),
        perhaps(texts),
        _DOCS,
    ),
    st.builds(
        d.RuleDeclaration,
        names,
        patterns,
        several(_RULE_ACTIONS, 1),
        perhaps(_SMALL),
        _PRIORITIES,
        st.booleans(),
        st.booleans(),
        _DOCS,
    ),
    st.builds(
        d.PolicyDeclaration,
        names,
        several(_OPERATION_PATTERNS, 1),
        st.booleans(),
        _SMALL,
        _PRIORITIES,
        perhaps(texts),
        _DOCS,
    ),
)
declarations: Strategy = _DECLARATIONS | st.builds(
    d.OntologyDeclaration, names, several(qualified_names), several(_DECLARATIONS), _DOCS
)
