"""Stream keys: which subscriptions are equal and may share a stream. Resume tokens carry the key.

A key is the 16-byte BLAKE2b hash of `KEY_VERSION`, the kind of stream, the tenant, the actor and the request. The
request is hashed as canonical text, whose tags do not depend on names in the code. Change `KEY_VERSION` with any change
of this form: older tokens then find no stream, and their clients resync.

    watch         statement without its constants, constants, parameters
    filter        node type, condition bound to the requester, "data" or "no data"
    collection    see `collections/queries.py`
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from vedette.filters.bind_request import bind_request
from vedette.filters.collection_query import CollectionQuery
from vedette.filters.inputs import FilterRequest
from vedette.gateway.wire.messages import to_wire
from vedette.gateway.wire.resume_token import subscription_hash
from vedette.language.parser.template import extract_literals
from vedette.language.syntax import statements as ast
from vedette.language.syntax.canonical import canonical_text

__all__ = [
    "KEY_VERSION",
    "claims_hash",
    "depends_on_claims",
    "filter_key",
    "is_shareable",
    "stream_key",
    "watch_key",
]

KEY_VERSION = "stream-key-1"
_canonical = msgspec.json.Encoder(order="sorted")
_SESSION_NAMES = re.compile(r"#(?!self\b|\$)\w|\bcurrent_session\b", re.IGNORECASE)
"""Names that mean something else in another session."""
_SHAREABLE_OPTIONS = frozenset({"ordering", "filter", "buffer"})
"""Options that are shareable with any value."""
_SHAREABLE_WORDS = {
    "initial": ("full", "none"),
    "mode": ("watch",),
    "delivery": ("best_effort",),
    "visibility": ("committed",),
    "deliver_on": ("commit",),
    "window": ("none",),
}
"""Options that are shareable only with these values."""


def stream_key(kind: str, tenant: str, actor: str | None, *request: str) -> bytes:
    """Return the key of a stream. `actor`: None in the system context, which sees everything."""
    return subscription_hash(
        KEY_VERSION, kind, tenant, "system" if actor is None else "actor", actor or "", *request
    )


def watch_key(tenant: str, actor: str | None, text: str, params: Mapping[str, Any]) -> bytes:
    """Return the key of a watch of the graph. `params`: the parameters that the statement uses."""
    extracted = extract_literals(text)
    statement = text
    if extracted is not None:
        statement = canonical_text(([" ".join(part.split()) for part in extracted.key], extracted.literals))
    return stream_key("watch", tenant, actor, statement, canonical_text(sorted(params.items())))


def filter_key(
    tenant: str,
    actor: str | None,
    query: CollectionQuery,
    auth: dict[str, Any] | None,
    moment: datetime,
    *,
    include_data: bool,
) -> bytes:
    """Return the key of a filter over a node type, bound to the requester and the time of the subscription."""
    condition = canonical_text(bind_request(query.condition, FilterRequest(auth=auth, time=moment)))
    data = "data" if include_data else "no data"
    return stream_key("filter", tenant, actor, query.collection, condition, data)


def claims_hash(auth: dict[str, Any] | None) -> bytes:
    """Return a 16-byte hash of `request.auth`, the claims that filters can read."""
    return subscription_hash(KEY_VERSION, "claims", _canonical.encode(to_wire(auth)).decode())


def depends_on_claims(query: CollectionQuery, moment: datetime) -> bool:
    """Return True if binding the filter to a requester changes it."""
    return bind_request(query.condition, FilterRequest(auth=None, time=moment)) != query.condition


def is_shareable(statement: ast.Watch, text: str) -> bool:
    """Return True if one watch can serve all subscribers with equal rights."""
    if statement.actions or _SESSION_NAMES.search(text):
        return False
    for option in statement.options:
        word = option.value.name if isinstance(option.value, ast.OptionValue) else None
        if option.name not in _SHAREABLE_OPTIONS and word not in _SHAREABLE_WORDS.get(option.name, ()):
            return False
    return True
