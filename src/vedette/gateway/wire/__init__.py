"""Formats between clients, server and broker, and their rules. No I/O.

`messages` decodes client messages, `validation` turns them into requests of `broker_link`, and `replies` encodes the
answers. `resume_token` and `snapshot_page` define the texts that clients store and send back: tokens and cursors.
"""

from __future__ import annotations

__all__: list[str] = []
