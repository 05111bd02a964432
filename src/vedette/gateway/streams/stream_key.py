"""Stream keys: which subscriptions are equal and may share a stream. Resume tokens carry the key."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from vedette.filters.bind_request import bind_request
from vedette.filters.collection_query import CollectionQuery
from vedette.filters.inputs import FilterRequest
from vedette.gateway.collections.queries import request_auth
from vedette.gateway.wire.messages import to_wire
from vedette.gateway.wire.resume_token import subscription_hash
from vedette.language.parser.template import extract_literals
from vedette.language.syntax import statements as ast
from vedette.language.syntax.canonical import canonical_text

if TYPE_CHECKING:
    from vedette.gateway.streams.client import Client
    from vedette.gateway.streams.tenant import Tenant

__all__ = ["claims_hash", "filter_key", "is_shareable", "watch_key"]

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


def filter_key(
    tenant: Tenant,
    actor: str | None,
    query: CollectionQuery,
    auth: dict[str, Any] | None,
    moment: datetime,
    *,
    include_data: bool,
) -> bytes:
    """Return the key of a filter, bound to the requester and time. Equal filters over one collection share it."""
    condition = canonical_text(bind_request(query.condition, FilterRequest(auth=auth, time=moment)))
    return subscription_hash(
        tenant.name, actor or "", "filter", query.collection, condition, str(include_data)
    )


def claims_hash(client: Client) -> bytes:
    """Return a 16-byte hash of the claims that filters can read."""
    return subscription_hash(_canonical.encode(to_wire(request_auth(client))).decode())


def is_shareable(statement: ast.Watch, text: str) -> bool:
    """Return True if one watch can serve all subscribers with equal rights."""
    if statement.actions or _SESSION_NAMES.search(text):
        return False
    for option in statement.options:
        word = option.value.name if isinstance(option.value, ast.OptionValue) else None
        if option.name not in _SHAREABLE_OPTIONS and word not in _SHAREABLE_WORDS.get(option.name, ()):
            return False
    return True


def watch_key(tenant: Tenant, actor: str | None, text: str, params: dict[str, Any]) -> bytes:
    """Return the key of a watch: the text without its constants, then the constants and parameters."""
    lifted = extract_literals(text)
    plan = text
    if lifted is not None:
        plan = canonical_text(([" ".join(part.split()) for part in lifted.key], lifted.literals))
    return subscription_hash(tenant.name, actor or "", "watch", plan, canonical_text(sorted(params.items())))
