"""Who began and ended to listen, and who could not go on: one line each, for those who have to know afterwards.

The lines go to the logger `vedette.gateway.streams.audit` at INFO, each with its `action` and the ids
(seeds/realtime-watching.md §5).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vedette.gateway.streams.client import Client

__all__ = ["audit"]

log = logging.getLogger("vedette.gateway.audit")


def audit(client: Client, action: str, sub: str, **more: Any) -> None:
    """`action`: subscription.created, subscription.ended, resume.refused."""
    if not log.isEnabledFor(logging.INFO):
        return
    ids = {"tenant": client.desk.tenant, "actor": client.actor, "conn": client.conn, "sub": sub, **more}
    log.info("%s %s", action, ids, extra={"action": action, **ids})
