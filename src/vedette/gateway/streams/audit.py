"""Audit log of the gateway: subscriptions start and end, resumes are refused.

Records go to the logger `vedette.gateway.audit` at level INFO, each with its `action` and the ids of tenant, actor,
connection and subscription.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vedette.gateway.streams.client import Client

__all__ = ["audit"]

log = logging.getLogger("vedette.gateway.audit")
_SENTENCES = {
    "subscription.created": "A subscription begins",
    "subscription.ended": "A subscription ends",
    "resume.refused": "A resume was refused",
}


def audit(client: Client, action: str, sub: str, **more: Any) -> None:
    """Log one record. `action` is a key of `_SENTENCES`."""
    if not log.isEnabledFor(logging.INFO):
        return
    ids = {"tenant": client.tenant.name, "actor": client.actor, "conn": client.conn, "sub": sub, **more}
    log.info(_SENTENCES[action], extra={"action": action, **ids})
