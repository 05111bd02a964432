"""Filters over the documents of external collections.

CEL text and JSON filter lists become the same expression tree. The tree is compiled once and then tested against every
change of the collection:

    CEL text ──► cel_lexer ─► cel_parser ──┐
    JSON list ─► filter_list ──────────────┴► limits ─► bind_request ─► evaluator ─► DocumentFilter.matches(FilterInput)

`collection_query.py` reads the whole query of a subscription: collection, filter, order, limit and cursor.
docs/reference/filters.md describes both filter languages.
"""

from vedette.filters.cel_parser import parse_cel
from vedette.filters.collection_query import parse_query
from vedette.filters.document_filter import compile_filter
from vedette.filters.filter_list import parse_filters
from vedette.filters.inputs import FilterInput, FilterOutcome

__all__ = ["FilterInput", "FilterOutcome", "compile_filter", "parse_cel", "parse_filters", "parse_query"]
