"""What a subscriber of an external collection is answered: that it is welcome, with what is there, or why it is not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vedette.errors import FilterError, VedetteError
from vedette.gateway.broker.subscribe import MATCHER_VERSION, SMALLER
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
    """Answers to subscribers that a `CollectionBroker` has counted in; one that has left meanwhile is told nothing."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def is_there(self, stream: CollectionStream, joining: PendingSubscriber) -> bool:
        client = joining.client
        known = (client.port, client.conn) in self._broker.clients
        return known and client.subscriptions.get(joining.sub) is stream

    def is_waiting(self, stream: CollectionStream, joining: PendingSubscriber) -> bool:
        """The same, of one whose request is to be answered now: who has left waits for nothing more."""
        there, client = self.is_there(stream, joining), joining.client
        if not there and (client.port, client.conn) in self._broker.clients:
            self._broker.reply(client, link.Reply(conn=client.conn, data=b""))
        return there

    def refuse(self, stream: CollectionStream, joining: PendingSubscriber, error: VedetteError) -> None:
        if not self.is_waiting(stream, joining):
            return
        client, sub = joining.client, joining.sub
        self._broker.remove_subscription(client, sub)
        payload = error_payload(error)
        payload["message"] = f"Subscribe failed: {payload['message']}"
        self._broker.reply(client, link.RequestFailed(conn=client.conn, id=sub, payload=payload))

    def acknowledge(
        self,
        stream: CollectionStream,
        joining: PendingSubscriber,
        seq: int,
        position: int,
        offset: int,
        documents: Documents | None,
    ) -> None:
        """The subscriber's chain begins at `seq`; what the stream was told since then follows."""
        client, sub, wanted = joining
        payload = {
            "subId": sub,
            "matcherVersion": MATCHER_VERSION,
            "partitions": 1,
            "seq": seq,
            "host": "pipeline",
            "resumeToken": stream.desk.sign_token(stream, seq, pending=documents is not None),
        }
        first = [encode_message("subscribe_ack", payload, sub)]
        if documents is not None:
            rows = [
                wanted.row(stream.collections[collection], key, document)
                for (collection, key), document in sorted(documents.items())
            ]
            first.append(
                client.desk.event_prefix + encode(sub) + stream.initial(rows, seq, offset, position)
                if wanted.watch is not None
                else _snapshot(stream, joining, rows, seq, offset)
            )
            most = self._broker.limits.max_answer_bytes
            if len(first[-1]) > most:
                self._broker.remove_subscription(client, sub)
                failure = too_large("What the watch begins with", most, SMALLER)
                payload = {"code": failure.code, "message": failure.text}
                self._broker.reply(client, link.RequestFailed(conn=client.conn, id=sub, payload=payload))
                return
        replay = stream.history.last_seq > seq
        record = link.Subscribed(
            conn=client.conn,
            sub_id=sub,
            stream=stream.stream_id,
            seq=seq,
            messages=first,
            event_prefix=client.desk.event_prefix,
            replay_follows=replay,
        )
        self._broker.reply(client, record, sub)
        if replay:
            self._broker.replay(client, sub, stream, seq)


def _snapshot(
    stream: CollectionStream, joining: PendingSubscriber, rows: list[dict[str, Any]], seq: int, offset: int
) -> bytes:
    """A page of a filter's documents, or why there is none: the subscription stands either way."""
    sub, query = joining.sub, joining.wanted.query
    assert query is not None
    try:
        page = snapshot_page(query, rows)
    except FilterError as error:
        code = "snapshot_limit" if error.code == "E1202" else "snapshot_failed"
        return encode_message("error", {"code": code, "message": error.text, "subId": sub}, sub)
    token = stream.desk.sign_token(stream, seq)
    payload = {"subId": sub, **page, "partition": 0, "seq": seq, "lsn": offset, "resumeToken": token}
    data = encode_message("snapshot", to_wire(payload), sub)
    if len(data) > MAX_SNAPSHOT_BYTES:
        text = "the snapshot has more than 16 MiB: ask for pages with limit and startAfter"
        return encode_message("error", {"code": "snapshot_limit", "message": text, "subId": sub}, sub)
    return data
