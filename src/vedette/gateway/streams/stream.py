"""A stream: numbers, encodes and retains each event once for all equal subscribers. Engine thread only.

A stream numbers its events with its database's seq and chains them: each event carries the seq of the event before it.
A `WatchStream` publishes one watch, shared by all subscribers with equal text, parameters and rights. A `FilterStream`
publishes one filter over a node type. A `CollectionStream` publishes a subscription to an external collection.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import google_crc32c
import msgspec

from vedette.gateway.streams.event_log import EventLog
from vedette.gateway.streams.replay_window import StreamHistory
from vedette.gateway.wire.broker_link import Port

__all__ = ["EncodedEvent", "Stream", "SubscriptionAddress"]

_encoder = msgspec.json.Encoder()
_canonical = msgspec.json.Encoder(order="sorted")
"""Encodes checksummed values: sorted keys, no spaces."""


class SubscriptionAddress(NamedTuple):
    """One subscription of one connection."""

    port: Port
    conn: int
    sub_id: str


class EncodedEvent(NamedTuple):
    """A numbered event of a stream."""

    seq: int
    suffix: bytes
    """The encoded event from its partition field on. The part before it names the receiver."""


class Stream:
    """One chain of events and its subscribers."""

    __slots__ = (
        "acked",
        "actor",
        "checksum",
        "claims_hash",
        "event_log",
        "history",
        "kept_until",
        "restore_spec",
        "resumable_until",
        "stream_id",
        "stream_key",
        "subscriber_count",
        "subscribers_by_port",
    )

    def __init__(
        self, event_log: EventLog, stream_id: int, stream_key: bytes | None, actor: str | None
    ) -> None:
        self.event_log = event_log
        self.stream_id = stream_id
        self.stream_key = stream_key
        """Hash that resume tokens carry; None if the stream cannot be resumed."""
        self.actor = actor
        self.restore_spec: bytes | None = None
        """JSON from which the next server rebuilds the stream (`broker/restore.py`); None if it ends here."""
        self.claims_hash: bytes | None = None
        """Hash of the claims that the filter was bound to; None if the filter does not depend on claims."""
        # Start at a fresh seq, so that tokens of an earlier stream with the same key cannot resume this one.
        began = event_log.next_seq()
        self.history = StreamHistory(evicted_seq=began, last_seq=began)
        self.subscriber_count = 0
        self.subscribers_by_port: dict[Port, int] = {}
        """Number of subscribers by gateway."""
        self.checksum = 0
        """Number of subscribers that want checksums."""
        self.kept_until: float | None = None
        """Monotonic time until which the stream is kept without subscribers."""
        self.resumable_until = 0.0
        """Monotonic time until which a disconnected client may resume. Until then, acknowledged events stay in the
        window.
        """
        self.acked: dict[SubscriptionAddress, int] | None = None
        """Last acknowledged seq by subscriber; None if none has acknowledged."""

    def append(self, name: bytes, body: Any, tick: int) -> EncodedEvent:
        """Number, encode and retain an event. `name`: JSON key of the body, quoted."""
        previous = self.history.last_seq
        seq = self.event_log.next_seq()
        suffix = self.encode_event(seq, previous, tick, name, body)
        self.event_log.retain(self.history, seq, suffix)
        return EncodedEvent(seq, suffix)

    def encode_event(self, seq: int, previous: int | None, tick: int, name: bytes, body: Any) -> bytes:
        """Encode an event from its partition field on. The part before it names the receiver."""
        data = _encoder.encode(body)
        rest = (
            b'"resumeToken":"%b",' % self.event_log.sign_token(self.stream_key, seq).encode()
            if self.stream_key is not None
            else b""
        )
        if self.checksum:
            rest += b'"checksum":"%08x",' % google_crc32c.value(_canonical.encode(body))
        before = b"%d" % previous if previous is not None else b"null"
        return b',"partition":0,"seq":%d,"prevSeq":%b,"lsn":%d,%b:%b,%b"extensions":{}}}' % (
            seq,
            before,
            tick,
            name,
            data,
            rest,
        )

    def acknowledge(self, subscriber: SubscriptionAddress, seq: int, now: float) -> None:
        """Record that a subscriber has everything up to `seq`. Events that all subscribers have and no client can
        resume are dropped.
        """
        self.acked = self.acked if self.acked is not None else {}
        self.acked[subscriber] = max(seq, self.acked.get(subscriber, 0))
        if len(self.acked) == self.subscriber_count and now >= self.resumable_until:
            self.event_log.window.discard_up_to(self.history, min(self.acked.values()))

    def add_subscriber(self, port: Port, *, checksum: bool) -> None:
        self.subscriber_count += 1
        self.subscribers_by_port[port] = self.subscribers_by_port.get(port, 0) + 1
        self.checksum += checksum
        self.kept_until = None

    def remove_subscriber(self, subscriber: SubscriptionAddress, *, checksum: bool) -> None:
        self.subscriber_count -= 1
        port = subscriber.port
        left = self.subscribers_by_port[port] - 1
        if left:
            self.subscribers_by_port[port] = left
        else:
            del self.subscribers_by_port[port]
        self.checksum -= checksum
        if self.acked is not None:
            self.acked.pop(subscriber, None)

    def close(self) -> None:
        """Drop the stream's retained events. `Tenant.close_stream` also releases the watch behind the stream."""
        self.event_log.window.remove(self.history)
