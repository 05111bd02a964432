"""The handshake's state in SQLite: one truth for the daemon, the command line and a curious person.

`HandshakeTables` is the way in. Each verb applies a machine to the rows it concerns inside one transaction, so that
what two processes do at the same time is as if one came after the other, and a reset is never overwritten by a
stale copy.
"""

from vedette.handshake.tables.handshake_db import HandshakeTables

__all__ = ["HandshakeTables"]
