"""The event log of one database: sequence numbers, replay window and resume tokens. Engine thread only."""

from __future__ import annotations

from vedette.clock import Clock
from vedette.engine.database import Database
from vedette.gateway.limits import ReplayLimits
from vedette.gateway.streams.replay_window import ReplayWindow, StreamHistory
from vedette.gateway.wire.messages import encode
from vedette.gateway.wire.resume_token import ResumeToken, TokenSigner

__all__ = ["EventLog"]


class EventLog:
    """Numbers and retains the events of all streams of one database."""

    def __init__(
        self, database: Database, *, signer: TokenSigner, limits: ReplayLimits, clock: Clock
    ) -> None:
        self.tenant = database.name
        self.clock = clock
        self.seq = database.boot << 32
        """Last seq of partition 0. It starts above every seq that earlier openings of the database can have used."""
        self.window = ReplayWindow(limits)
        self.event_prefix = (
            b'{"type":"event","payload":{"version":1,"tenant":' + encode(database.name) + b',"subId":'
        )
        """The bytes with which the encoding of every event of this database begins, up to the receiver's name."""
        self._database = database
        self._signer = signer

    def next_seq(self) -> int:
        self.seq += 1
        return self.seq

    def retain(self, history: StreamHistory, seq: int, suffix: bytes) -> None:
        """Add an encoded event to the replay window."""
        self.window.add(history, seq, suffix, self.clock.monotonic())

    def sign_token(self, stream_key: bytes, seq: int, *, snapshot_pending: bool = False) -> str:
        """Return a resume token for a position in a stream."""
        return self._signer.sign(
            self.tenant, stream_key, self._database.epoch, seq, snapshot_pending=snapshot_pending
        )

    def verify_token(self, text: str) -> ResumeToken | None:
        return self._signer.verify(self.tenant, text)
