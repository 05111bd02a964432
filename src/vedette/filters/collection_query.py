"""The query of a document subscription: collection, filter, order, limit and cursor.

Order, limit and cursor apply to the snapshot only, not to the changes that follow (docs/reference/filters.md#queries).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vedette.errors import FilterError
from vedette.filters.cel_parser import parse_cel
from vedette.filters.filter_list import FilterCondition, build_expression, parse_filter_records, validate_name
from vedette.filters.limits import DEFAULT_FILTER_LIMITS, FilterLimits, quote_name
from vedette.language.syntax.expressions import Expression

__all__ = ["MAX_PAGE_DOCUMENTS", "CollectionQuery", "SortKey", "parse_query"]

MAX_PAGE_DOCUMENTS = 1000
"""Documents that one page of a snapshot may have."""

_KEYS = frozenset({"collection", "filters", "filter", "orderBy", "limit", "startAfter", "showDeleted"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SortKey:
    field: str
    """A dotted path into the document."""
    descending: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionQuery:
    """A checked query. `condition` is the tree of the filter list or of the CEL text."""

    collection: str
    condition: Expression
    filters: tuple[FilterCondition, ...] = ()
    """The conditions of the filter list; empty for a query with CEL text."""
    filter: str | None = None
    """The CEL text, or None."""
    order_by: tuple[SortKey, ...] = ()
    limit: int | None = None
    start_after: str | None = None
    """The opaque cursor of an earlier page."""
    show_deleted: bool = False


def parse_query(query: object, limits: FilterLimits = DEFAULT_FILTER_LIMITS) -> CollectionQuery:
    """Read a query from decoded JSON; raises FilterError. Null, and a limit of 0, count as not given."""
    if not isinstance(query, Mapping):
        raise FilterError("E1201", "query: an object is expected")
    unknown = [str(key) for key in query if key not in _KEYS]
    if unknown:
        raise FilterError(
            "E1201",
            f"query: {quote_name(unknown[0])} is not a key of a query; the keys are {', '.join(sorted(_KEYS))}",
        )
    source, filters = query.get("filter"), query.get("filters")
    if source is not None and filters is not None:
        raise FilterError("E1201", "query: filter and filters cannot be given together")
    records = parse_filter_records(filters, limits)
    return CollectionQuery(
        collection=validate_name(query.get("collection"), "query.collection", limits),
        condition=build_expression(records, limits) if source is None else parse_cel(source, limits),
        filters=records,
        filter=source,
        order_by=_read_order(query.get("orderBy"), limits),
        limit=_read_limit(query.get("limit")),
        start_after=_read_cursor(query.get("startAfter"), limits),
        show_deleted=_read_flag(query.get("showDeleted")),
    )


def _read_order(value: Any, limits: FilterLimits) -> tuple[SortKey, ...]:
    if value is None:
        return ()
    if not isinstance(value, list | tuple) or len(value) > limits.list_items:
        raise FilterError("E1201", f"query.orderBy: a list of at most {limits.list_items} terms is expected")
    terms = tuple(_read_term(item, f"query.orderBy[{index}]", limits) for index, item in enumerate(value))
    if len({term.field for term in terms}) < len(terms):
        raise FilterError("E1201", "query.orderBy: a field is given twice")
    return terms


def _read_term(item: Any, where: str, limits: FilterLimits) -> SortKey:
    if not isinstance(item, Mapping) or not {"field"} <= set(item) <= {"field", "direction"}:
        raise FilterError("E1201", f"{where}: an object with field and direction is expected")
    direction = item.get("direction", "asc")
    if direction not in ("asc", "desc"):
        raise FilterError("E1201", f"{where}.direction: asc or desc is expected")
    field = validate_name(item["field"], f"{where}.field", limits)
    if not all(field.split(".")):
        raise FilterError("E1201", f"{where}.field: a dotted path has an empty step")
    return SortKey(field=field, descending=direction == "desc")


def _read_limit(value: Any) -> int | None:
    if value is None or (type(value) is int and value == 0):
        return None
    if type(value) is not int or not 0 < value <= MAX_PAGE_DOCUMENTS:
        raise FilterError("E1201", f"query.limit: a whole number up to {MAX_PAGE_DOCUMENTS} is expected")
    return value


def _read_cursor(value: Any, limits: FilterLimits) -> str | None:
    if value is None or value == "":
        return None
    return validate_name(value, "query.startAfter", limits)


def _read_flag(value: Any) -> bool:
    if value is None or isinstance(value, bool):
        return bool(value)
    raise FilterError("E1201", "query.showDeleted: true or false is expected")
