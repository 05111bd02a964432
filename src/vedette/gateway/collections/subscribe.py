"""Replies to subscribers of external collections: acknowledgement with a snapshot, or an error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vedette.errors import FilterError, VedetteError
from vedette.gateway.broker.subscribe import MATCHER_VERSION, SMALLER_ADVICE
from vedette.gateway.collections.snapshot import Documents
from vedette.gateway.collections.stream import CollectionStream, PendingSubscriber
from vedette.gateway.wire import broker_link as link
from vedette.gateway.wire.messages import encode, encode_message, error_payload, to_wire
from vedette.gateway.wire.replies import too_large
from vedette.gateway.wire.snapshot_page import MAX_SNAPSHOT_BYTES, snapshot_page

if TYPE_CHECKING:
    from vedette.gateway.broker.broker import Broker

__all__ = ["CollectionSubscriber"]


class CollectionSubscriber:
    """Sends replies to subscribers that a `CollectionBroker` has counted. A subscriber that has left gets no reply."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def is_subscribed(self, stream: CollectionStream, pending: PendingSubscriber) -> bool:
        client = pending.client
        known = (client.port, client.conn) in self._broker.clients
        return known and client.subscriptions.get(pending.sub_id) is stream

    def is_waiting(self, stream: CollectionStream, pending: PendingSubscriber) -> bool:
        """Return True if the subscriber still waits for this stream. If its connection is open but the subscription was
        replaced or removed, send an empty reply, which closes the pending request.
        """
        subscribed, client = self.is_subscribed(stream, pending), pending.client
        if not subscribed and (client.port, client.conn) in self._broker.clients:
            self._broker.reply(client, link.Reply(conn=client.conn, data=b""))
        return subscribed

    def reject(self, stream: CollectionStream, pending: PendingSubscriber, error: VedetteError) -> None:
        if not self.is_waiting(stream, pending):
            return
        client, sub_id = pending.client, pending.sub_id
        self._broker.remove_subscription(client, sub_id)
        payload = error_payload(error)
        payload["message"] = f"Subscribe failed: {payload['message']}"
        self._broker.reply(client, link.RequestFailed(conn=client.conn, id=sub_id, payload=payload))

    def acknowledge(
        self,
        stream: CollectionStream,
        pending: PendingSubscriber,
        seq: int,
        position: int,
        offset: int,
        documents: Documents | None,
    ) -> None:
        """Start the subscriber's chain at `seq` and replay the events published since."""
        client, sub_id, request = pending
        payload = {
            "subId": sub_id,
            "matcherVersion": MATCHER_VERSION,
            "partitions": 1,
            "seq": seq,
            "host": "pipeline",
            "resumeToken": stream.tenant.sign_token(stream, seq, snapshot_pending=documents is not None),
        }
        messages = [encode_message("subscribe_ack", payload, sub_id)]
        if documents is not None:
            rows = [
                request.row(stream.collections[collection], key, document)
                for (collection, key), document in sorted(documents.items())
            ]
            messages.append(
                client.tenant.event_prefix + encode(sub_id) + stream.initial(rows, seq, offset, position)
                if request.watch is not None
                else _snapshot(stream, pending, rows, seq, offset)
            )
            limit = self._broker.limits.max_answer_bytes
            if len(messages[-1]) > limit:
                self._broker.remove_subscription(client, sub_id)
                failure = too_large("The initial event of the watch", limit, SMALLER_ADVICE)
                payload = {"code": failure.code, "message": failure.text}
                self._broker.reply(client, link.RequestFailed(conn=client.conn, id=sub_id, payload=payload))
                return
        replay = stream.history.last_seq > seq
        record = link.Subscribed(
            conn=client.conn,
            sub_id=sub_id,
            stream=stream.stream_id,
            seq=seq,
            messages=messages,
            event_prefix=client.tenant.event_prefix,
            replay_follows=replay,
        )
        self._broker.reply(client, record, sub_id)
        if replay:
            self._broker.replay(client, sub_id, stream, seq)


def _snapshot(
    stream: CollectionStream, pending: PendingSubscriber, rows: list[dict[str, Any]], seq: int, offset: int
) -> bytes:
    """Encode a page of a filter's documents, or an error. The subscription stays active either way."""
    sub_id, query = pending.sub_id, pending.request.query
    assert query is not None
    try:
        page = snapshot_page(query, rows)
    except FilterError as error:
        code = "snapshot_limit" if error.code == "E1202" else "snapshot_failed"
        return encode_message("error", {"code": code, "message": error.text, "subId": sub_id}, sub_id)
    token = stream.tenant.sign_token(stream, seq)
    payload = {"subId": sub_id, **page, "partition": 0, "seq": seq, "lsn": offset, "resumeToken": token}
    data = encode_message("snapshot", to_wire(payload), sub_id)
    if len(data) > MAX_SNAPSHOT_BYTES:
        text = "the snapshot is larger than 16 MiB: request pages with limit and startAfter"
        return encode_message("error", {"code": "snapshot_limit", "message": text, "subId": sub_id}, sub_id)
    return data
