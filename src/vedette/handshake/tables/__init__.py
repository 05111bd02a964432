"""The state of the handshake in SQLite, shared by the daemon, the command line and any SQLite tool.

`HandshakeTables` applies a state machine to its rows inside one transaction. Concurrent changes by two processes are
serialised, and a reset is never overwritten with an older state.
"""

from vedette.handshake.tables.handshake_db import HandshakeTables

__all__ = ["HandshakeTables"]
