"""Records for gateways, held until the commits they depend on are durable.

Theory of operation. A batch of requests runs without waiting for the disk; its replies and events are queued here.
`StreamPump.flush` then flushes every database that the batch touched, and the broker sends what `drain` returns. If a
flush fails, `fail_replies` turns the replies about that database into errors. Events need no such check: a watch yields
only events of durable commits. Engine thread only. No I/O.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vedette.errors import StoreError
from vedette.gateway.streams.client import Client
from vedette.gateway.streams.stream import EncodedEvent, Stream
from vedette.gateway.streams.tenant import Tenant
from vedette.gateway.wire import broker_link as link
from vedette.gateway.wire.broker_link import BrokerRecord, Port
from vedette.gateway.wire.messages import error_payload

__all__ = ["SEND_THRESHOLD_BYTES", "SendQueue"]

SEND_THRESHOLD_BYTES = 8_388_608
"""Queued payload bytes above which a batch is flushed and sent before it ends."""
REPLAY_CHUNK_BYTES = 262_144
"""Payload bytes of a replay after which the gateway must ask for the rest."""


@dataclass(slots=True)
class _QueuedRecord:
    port: Port
    record: BrokerRecord
    tenant: Tenant | None = None
    """The record is sent when this database has flushed its commit. None: it can be sent at once."""
    request_id: str | None = None
    """Id of the client message that the record answers."""


class SendQueue:
    """Replies and events in the order in which they were produced."""

    def __init__(self) -> None:
        self._queued: list[_QueuedRecord] = []
        self._queued_bytes = 0
        self._touched: set[Tenant] = set()

    @property
    def is_over_threshold(self) -> bool:
        """True if enough bytes are queued that they should be sent before the batch ends."""
        return self._queued_bytes >= SEND_THRESHOLD_BYTES

    def reply(self, client: Client, record: BrokerRecord, request_id: str | None = None) -> None:
        """Queue a record for one connection and mark its database for the next flush."""
        self._touched.add(client.tenant)
        self._queued.append(_QueuedRecord(client.port, record, client.tenant, request_id))
        self._queued_bytes += link.payload_bytes(record)

    def fail(self, client: Client, request_id: str | None, payload: dict[str, Any]) -> None:
        """Queue an error for one connection."""
        self.reply(client, link.RequestFailed(conn=client.conn, id=request_id, payload=payload))

    def replay(self, client: Client, sub_id: str, stream: Stream, seq: int) -> None:
        """Queue the events after `seq`, up to about REPLAY_CHUNK_BYTES. The gateway asks for the rest."""
        events: list[tuple[int, bytes]] = []
        size = 0
        missed = stream.history.events_after(seq)
        for event in missed:
            events.append((event.seq, event.suffix))
            size += len(event.suffix)
            if size >= REPLAY_CHUNK_BYTES:
                break
        more = len(events) < len(missed)
        self.reply(client, link.ReplayedEvents(conn=client.conn, sub_id=sub_id, events=events, more=more))

    def publish(self, stream: Stream, event: EncodedEvent, committed_at: float) -> None:
        """Queue an event once per gateway that has subscribers. `committed_at`: monotonic seconds."""
        self._queued_bytes += len(event.suffix)
        for port in stream.subscribers_by_port:
            record = link.StreamEvent(
                stream=stream.stream_id, seq=event.seq, suffix=event.suffix, committed_at=committed_at
            )
            self._queued.append(_QueuedRecord(port, record))

    def notify(self, port: Port, record: BrokerRecord) -> None:
        """Queue a record that depends on no commit, such as a notice or the end of a stream."""
        self._queued.append(_QueuedRecord(port, record))

    def take_touched(self) -> set[Tenant]:
        """Return the databases with replies queued since the last call."""
        touched, self._touched = self._touched, set()
        return touched

    def fail_replies(self, tenant: Tenant, error: StoreError) -> None:
        """Replace the queued replies about a database by errors after its flush failed: its writes did not happen."""
        payload = error_payload(error)
        for queued in self._queued:
            record = queued.record
            if queued.tenant is tenant and isinstance(
                record, link.Reply | link.Subscribed | link.ConnectionOpened
            ):
                queued.record = link.RequestFailed(conn=record.conn, id=queued.request_id, payload=payload)
                queued.tenant = None

    def drain(self) -> dict[Port, list[BrokerRecord]]:
        """Empty the queue and return its records by gateway, each list in order."""
        queued, self._queued, self._queued_bytes = self._queued, [], 0
        batches: dict[Port, list[BrokerRecord]] = {}
        for each in queued:
            batches.setdefault(each.port, []).append(each.record)
        return batches
