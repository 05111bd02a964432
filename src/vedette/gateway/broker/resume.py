"""Resumes streams after a reconnect, and replays events to subscriptions that lag. Engine thread only.

A client presents a signed token with its last seq. If every later event is still in the replay window, the client gets
them and continues; otherwise it gets resync-required with the reason.
"""

from __future__ import annotations

from vedette.gateway.streams.client import Client
from vedette.gateway.streams.pump import StreamPump
from vedette.gateway.streams.send_queue import SendQueue
from vedette.gateway.streams.stream import Stream
from vedette.gateway.streams.stream_key import claims_hash
from vedette.gateway.streams.subscription_table import SubscriptionTable, audit
from vedette.gateway.wire import broker_link as link
from vedette.gateway.wire.replies import resume_ack
from vedette.gateway.wire.resume_token import ResumeToken
from vedette.transport.sampled_log import log_sampled

__all__ = ["StreamResumer", "refusal_reason"]


class StreamResumer:
    def __init__(self, send_queue: SendQueue, subscriptions: SubscriptionTable, pump: StreamPump) -> None:
        self._send_queue, self._subscriptions, self._pump = send_queue, subscriptions, pump
        self.outcomes: dict[str, int] = {}
        """Number of resumes by outcome: "ok", or the reason for refusal."""

    def resume(self, client: Client, record: link.ResumeRequest) -> None:
        """Resume a stream: replay every event after the token's seq, or reply resync-required with a reason."""
        self._pump.flush()  # every durable event is numbered before the position is compared
        tenant, sub_id = client.tenant, record.sub_id
        token = tenant.event_log.verify_token(record.token)
        stream = tenant.streams.get(token.stream_key) if token is not None else None
        reason = refusal_reason(client, record, token, stream)
        self.outcomes[reason or "ok"] = self.outcomes.get(reason or "ok", 0) + 1
        if reason is not None or token is None or stream is None:
            audit(client, "resume.refused", sub_id, reason=reason)
            data = resume_ack(sub_id, record.id, status="resync-required", reason=reason)
            self._send_queue.reply(client, link.Reply(conn=client.conn, data=data), record.id)
            return
        seq = _resume_seq(token, record)
        if client.subscriptions.get(sub_id) is not stream:
            self._subscriptions.remove(client, sub_id)
            self._subscriptions.add(client, sub_id, stream)
        subscribed = link.Subscribed(
            conn=client.conn,
            sub_id=sub_id,
            stream=stream.stream_id,
            seq=seq,
            messages=[resume_ack(sub_id, record.id, status="ok", fromSeq=seq + 1)],
            event_prefix=tenant.event_log.event_prefix,
            replay_follows=True,
        )
        self._send_queue.reply(client, subscribed, record.id)
        self._send_queue.replay(client, sub_id, stream, seq)

    def replay(self, client: Client, record: link.ReplayRequest) -> None:
        """Replay the events that a lagging subscription missed, or reply that it must resync."""
        stream = client.subscriptions.get(record.sub_id)
        if stream is None:
            return
        tenant = client.tenant.name
        log_sampled(
            "subscription.replay",
            tenant,
            f"A subscription of {tenant} lags and is replayed",
            conn=client.conn,
        )
        self._pump.flush()
        if stream.history.can_replay_from(record.seq):
            self._send_queue.replay(client, record.sub_id, stream, record.seq)
        else:
            self._send_queue.reply(
                client, link.ResyncRequired(conn=client.conn, sub_id=record.sub_id, reason="window")
            )


def refusal_reason(
    client: Client, record: link.ResumeRequest, token: ResumeToken | None, stream: Stream | None
) -> str | None:
    """Return why the subscription cannot be resumed; None if it can. `stream`: the stream of the token's key."""
    if token is None or token.epoch != client.tenant.database.epoch:
        return "generation"
    if token.snapshot_pending or set(token.seqs) != {0}:
        return "snapshot"
    held = client.subscriptions.get(record.sub_id)
    if held is not None and held.stream_key != token.stream_key:
        return "query-changed"
    if stream is None:
        return "window"
    if stream.actor != client.effective_actor:
        return "auth"
    if stream.claims_hash not in (None, claims_hash(client.request_auth())):
        return "auth"
    seq = _resume_seq(token, record)
    is_ahead = record.last_seq is not None and record.last_seq.get(0, 0) > stream.history.last_seq
    if seq > stream.history.last_seq or is_ahead:
        return "gap"
    return None if stream.history.can_replay_from(seq) else "window"


def _resume_seq(token: ResumeToken, record: link.ResumeRequest) -> int:
    """Return the seq to resume after. A client's `lastSeq` can only move it back: duplicates are harmless, gaps are
    not.
    """
    last_seq = record.last_seq.get(0) if record.last_seq is not None else None
    return token.seqs[0] if last_seq is None else min(token.seqs[0], last_seq)
