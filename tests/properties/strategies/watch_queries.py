"""Random watches (pattern, condition, projection) with the MATCH that gives the expected rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tests.properties.strategies.watch_ontologies import VALUES, Choices, Ontology
from tests.properties.strategies.watch_patterns import Named, PatternWriter, Placeholder, filled

__all__ = ["Query", "draw_query"]


@dataclass(frozen=True)
class Query:
    """A watch with placeholders for constants."""

    pattern: str
    where: str | None
    narrowed: str | None
    """The value of the option `filter`, used instead of WHERE."""
    returns: tuple[str, ...]
    variables: tuple[str, ...]
    """The named variables. Their ids identify a match."""
    placeholders: tuple[Placeholder, ...]
    kind: str
    """`rows`, `distinct` or `groups`."""
    keys: int = 0
    """For groups: the number of leading columns that form the key."""
    order: str | None = None
    other_filter: str | None = None
    """A condition for ALTER WATCH … SET [filter: …]."""

    @property
    def identified(self) -> bool:
        """True if rows contain the ids of all variables, so that a reader can identify matches."""
        return self.kind == "rows" and self.returns[-1].endswith(" AS ids_end")

    def watch_text(self, values: tuple[Any, ...], *options: str) -> str:
        where = f" WHERE {self.where}" if self.where is not None else ""
        narrowed = (f"filter: {self.narrowed}",) if self.narrowed is not None else ()
        ordering = (f"ordering: attribute({self.order})",) if self.order is not None else ()
        all_options = (*narrowed, *ordering, *options)
        brackets = f" [{', '.join(all_options)}]" if all_options else ""
        return filled(
            f"WATCH {self.pattern}{where}{brackets} RETURN {self._returns()}", self.placeholders, values
        )

    def match_text(self, values: tuple[Any, ...]) -> str:
        """Return the equivalent query. Its rows begin with the identity."""
        conditions = [f"({part})" for part in (self.where, self.narrowed) if part is not None]
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        ids = [f"{name}.id AS id{place}" for place, name in enumerate(self.variables)]
        front = f"{', '.join(ids)}, " if self.kind == "rows" and ids else ""
        return filled(
            f"MATCH {self.pattern}{where} RETURN {front}{self._returns()}", self.placeholders, values
        )

    def altered(self) -> Query:
        return replace(self, narrowed=self.other_filter, other_filter=self.narrowed)

    def alter_text(self, handle: str, values: tuple[Any, ...]) -> str:
        return filled(f"ALTER WATCH #{handle} SET [filter: {self.other_filter}]", self.placeholders, values)

    def _returns(self) -> str:
        return f"{'DISTINCT ' if self.kind == 'distinct' else ''}{', '.join(self.returns)}"

    @property
    def ids_in_match(self) -> int:
        return len(self.variables) if self.kind == "rows" else 0

    def parameters(self, values: tuple[Any, ...]) -> dict[str, Any]:
        return {
            f"p{placeholder.number}": values[placeholder.number]
            for placeholder in self.placeholders
            if placeholder.form != "literal"
        }


def draw_query(choices: Choices, ontology: Ontology, named: Named) -> Query:
    writer = PatternWriter(choices, ontology, named)
    pattern = "()" if choices.number(0, 39) == 39 else writer.pattern(choices.one((1, 1, 2, 2, 3, 4)))
    where = writer.condition() if choices.rng(60) else None
    narrowed = writer.condition(1) if choices.rng(12) else None
    if pattern == "()":
        returns: tuple[str, ...] = (f"{writer.count()} AS c0", f"{writer.exists()} AS c1")
        return Query(pattern, where, narrowed, returns, (), tuple(writer.placeholders), "rows")
    kind = choices.weighed(rows=5, groups=4, distinct=1)
    returns, keys = _groups(writer) if kind == "groups" else (_rows(writer, kind), 0)
    readable = writer.readable("Int", "String")
    order = None
    if kind == "rows" and readable and choices.rng(15):
        order = f"{choices.one(readable)[0]} {choices.one(('ASC', 'DESC'))}"
    variables = tuple(variable.name for variable in writer.own)
    given = len(writer.placeholders)
    other = writer.condition(1) if choices.rng(30) else None
    placeholders = tuple(
        placeholder if placeholder.number < given else replace(placeholder, form="literal")
        for placeholder in writer.placeholders
    )
    return Query(pattern, where, narrowed, returns, variables, placeholders, kind, keys, order, other)


# Projection


def _rows(writer: PatternWriter, kind: str) -> tuple[str, ...]:
    choices = writer.choices
    found = [f"{_value(writer)} AS c{place}" for place in range(choices.number(1, 3))]
    if kind == "rows" and writer.own and choices.rng(60):
        ids = [f"{variable.name}.id AS ids{place}" for place, variable in enumerate(writer.own)]
        found += [*ids, "1 AS ids_end"]
    return tuple(found)


def _value(writer: PatternWriter) -> str:
    """Return a projection: an element, an attribute or a computed value."""
    choices = writer.choices
    scalars, numbers = writer.readable(*VALUES), writer.readable("Int")
    followed, texts = writer.followed(), writer.readable("String")
    form = choices.weighed(
        attribute=6,
        element=4,
        sum=2,
        text=1,
        test=1,
        followed=2,
        count=1,
        collect=1,
        exists=1,
        type=1,
        refers=1,
    )
    match form:
        case "attribute" if scalars:
            return choices.one(scalars)[0]
        case "sum" if numbers:
            more = choices.one(("1", writer.placeholder((1, 2, 5))))
            return f"{choices.one(numbers)[0]} {choices.one('+*-')} {more}"
        case "text" if texts:
            return f'COALESCE({choices.one(texts)[0]}, "none") ++ {writer.placeholder(("!", "?"))}'
        case "test" if numbers:
            return f"{choices.one(numbers)[0]} > {writer.placeholder((0, 1, 2))}"
        case "followed" if followed:
            return choices.one(followed)[0]
        case "count":
            return writer.count()
        case "collect":
            return writer.fold("COLLECT")
        case "exists":
            return writer.exists()
        case "type" if writer.own:
            return f"{choices.one(writer.own).name}._type"
        case "refers" if references := [t for t, kind in writer.readable() if kind not in VALUES]:
            return choices.one(references)
    return choices.one(writer.own).name if writer.own else "1"


def _groups(writer: PatternWriter) -> tuple[tuple[str, ...], int]:
    choices = writer.choices
    keys = [f"{_key(writer)} AS k{place}" for place in range(choices.one((1, 0, 2)))]
    aggregates = [f"{_aggregate(writer)} AS c{place}" for place in range(choices.number(1, 3))]
    return (*keys, *aggregates), len(keys)


def _key(writer: PatternWriter) -> str:
    choices = writer.choices
    scalars = writer.readable("String", "Int", "Bool")
    form = choices.weighed(attribute=5, element=2, followed=1, sum=1, count=1)
    match form:
        case "followed" if followed := writer.followed():
            return choices.one(followed)[0]
        case "sum" if numbers := writer.readable("Int"):
            return f"{choices.one(numbers)[0]} + {choices.one(('1', writer.placeholder((1, 2))))}"
        case "count":
            return writer.count()
        case "attribute" if scalars:
            return choices.one(scalars)[0]
    return choices.one(writer.own).name if writer.own else "1"


def _aggregate(writer: PatternWriter) -> str:
    choices = writer.choices
    scalars, numbers = writer.readable(*VALUES), writer.readable("Int", "Float")
    form = choices.weighed(
        all=3, element=2, value=2, distinct=2, number=5, extreme=3, some=3, collect=1, span=1, more=1
    )
    match form:
        case "element" if writer.own:
            return f"COUNT({choices.one(('', 'DISTINCT '))}{choices.one(writer.own).name})"
        case "value" if scalars:
            return f"COUNT({choices.one(scalars)[0]})"
        case "distinct" if scalars:
            return f"COUNT(DISTINCT {choices.one(scalars)[0]})"
        case "number" if numbers:
            where = f" WHERE {writer.condition(1)}" if choices.rng(25) else ""
            distinct = "DISTINCT " if choices.rng(20) else ""
            return f"{choices.one(('SUM', 'AVG'))}({distinct}{choices.one(numbers)[0]}{where})"
        case "extreme" if scalars:
            return f"{choices.one(('MIN', 'MAX'))}({choices.one(scalars)[0]})"
        case "some" if writer.own:
            return f"COUNT({choices.one(writer.own).name} WHERE {writer.condition(1)})"
        case "collect" if scalars:
            return f"COLLECT({choices.one(('', 'DISTINCT '))}{choices.one(scalars)[0]})"
        case "span" if numbers:
            text = choices.one(numbers)[0]
            return f"MAX({text}) - MIN({text})"
        case "more":
            return f"COUNT(*) + {writer.placeholder((1, 10))}"
    return "COUNT(*)"
