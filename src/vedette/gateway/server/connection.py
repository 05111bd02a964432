"""One client's protocol, without I/O: messages in, messages and requests out.

Theory of operation. A connection is NEW until it authenticates, OPENING while the broker looks up its actor, OPEN
afterwards, and finally CLOSED. Messages that arrive in state OPENING are deferred and dispatched in order when the
broker answers. Every message gets a reply or an error. An invalid message never closes the connection. The server
closes it if `auth` does not arrive in time, the token expires, or the actor does not exist.

    state      auth               heartbeat   any other message
    NEW        submit ▸ OPENING   reply       error unauthorized "auth required"
    OPENING    defer              defer       defer
    OPEN       refresh            reply       dispatched by MESSAGES
    CLOSED     ignored            ignored     ignored

The owner of the connection supplies `sink`, which receives outgoing messages, and a function that submits requests to
the broker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from enum import Enum
from typing import Any, NamedTuple, Protocol, cast

import msgspec

from vedette.gateway.limits import GatewayLimits
from vedette.gateway.server.auth import Authenticator, AuthError, Grant
from vedette.gateway.server.backpressure import RequestBudget
from vedette.gateway.server.outbound import FrameBatch, OutboundFrame
from vedette.gateway.server.subscription import HoldReason, Subscription
from vedette.gateway.wire import broker_link as link
from vedette.gateway.wire import messages, validation
from vedette.gateway.wire.close_codes import CloseCode
from vedette.gateway.wire.counters import Counters
from vedette.gateway.wire.messages import Message, MessageError, decode_message, encode_message
from vedette.gateway.wire.validation import add_ignored_fields
from vedette.values import timestamp_to_text

__all__ = ["MESSAGES", "Connection", "Sink", "State"]


class Sink(Protocol):
    """Receives the outgoing messages of one connection."""

    def send(self, frame: OutboundFrame) -> None: ...

    def send_batch(self, batch: FrameBatch) -> None: ...

    def close(self, code: int, reason: str) -> None: ...


class State(Enum):
    NEW = "new"
    OPENING = "opening"
    OPEN = "open"
    CLOSED = "closed"


class SubscribeOptions(NamedTuple):
    """Options of a subscription that the server applies. Most subscriptions use the defaults."""

    low_priority: bool = False
    max_unacked: int | None = None
    ignored: tuple[str, ...] = ()
    """Names of unknown fields in the subscribe message."""


_DEFAULT_OPTIONS = SubscribeOptions()
_HEARTBEAT = OutboundFrame(encode_message("heartbeat"))


class Connection:
    """One client connection."""

    __slots__ = (
        "_authenticator",
        "_counters",
        "_deferred",
        "_limits",
        "_now",
        "_options",
        "_pending",
        "_pending_bytes",
        "_request_budget",
        "_size",
        "_submit",
        "checksum",
        "connection_id",
        "grant",
        "outbox_full",
        "sink",
        "state",
        "subscriptions",
        "version",
    )

    def __init__(
        self,
        connection_id: int,
        sink: Sink,
        *,
        authenticator: Authenticator,
        limits: GatewayLimits,
        submit: Callable[[Any], bool],
        now: Callable[[], datetime],
        request_budget: RequestBudget,
        counters: Counters,
    ) -> None:
        self.connection_id = connection_id
        self.sink = sink
        self.state = State.NEW
        self.grant: Grant | None = None
        self.version = 0
        self.checksum = False
        self.outbox_full = False
        """True if the outbox is above its high mark."""
        self.subscriptions: dict[str, Subscription] = {}
        self._authenticator = authenticator
        self._limits = limits
        self._submit = submit
        self._now = now
        self._request_budget = request_budget
        self._counters = counters
        self._pending = 0
        self._pending_bytes = 0
        """Upper bound for the bytes of unanswered requests; reset to 0 when no request is pending."""
        self._size = 0
        """Bytes of the message being dispatched."""
        self._deferred: list[tuple[Message, int]] | None = None
        """Messages deferred in state OPENING, each with its size in bytes."""
        self._options: dict[str, SubscribeOptions] | None = None
        """Options by subscription id, from the last subscribe message for that id. None if all are defaults."""

    # --- inbound ------------------------------------------------------------------------------------------------

    def receive(self, data: bytes | str) -> None:
        """Handle one text frame from the client."""
        if self.state is State.CLOSED:
            return
        self._size = len(data)
        try:
            self._dispatch(decode_message(data))
        except MessageError as error:
            self.send_error(error.code, error.text, error.id)

    def _dispatch(self, msg: Message) -> None:
        if self.state is State.OPENING:
            self._defer(msg)
        elif msg.type == "heartbeat":
            self.sink.send(_HEARTBEAT)
        elif msg.type == "auth":
            self._authenticate(msg)
        elif self.state is State.NEW:
            self.send_error("unauthorized", "auth required", msg.id)
        else:
            MESSAGES[msg.type](self, msg)

    def _defer(self, msg: Message) -> None:
        self._deferred = self._deferred if self._deferred is not None else []
        full = len(self._deferred) >= self._limits.max_pending_requests
        if full or not self._has_room():
            raise MessageError(
                "busy", "too many messages before auth_ack: wait for it, then send them again", msg.id
            )
        self._deferred.append((msg, self._size))
        self._count_pending()

    # --- auth ---------------------------------------------------------------------------------------------------

    def _authenticate(self, msg: Message) -> None:
        payload: messages.Auth = msg.payload
        try:
            grant = self._authenticator.authenticate(payload.token, payload.database or payload.tenant)
        except AuthError as error:
            self.send_error(error.code, error.text, msg.id, retryable=error.code == "busy")
            return
        if self.state is State.OPEN:
            self._refresh(grant, msg.id)
            return
        self.grant, self.version, self.checksum = grant, payload.version, payload.checksum
        self.state = State.OPENING
        opening = link.OpenConnection(
            conn=self.connection_id,
            id=msg.id,
            tenant=grant.tenant,
            actor=grant.actor,
            system=grant.is_system,
            claims=cast("dict[str, Any]", grant.claims),
            checksum=payload.checksum,
            local=grant.via_local_socket,
        )
        if not self._submit(opening):
            self.state, self.grant = State.NEW, None
            self.send_error("busy", "the server is overloaded: try again later", msg.id, retryable=True)

    def _refresh(self, grant: Grant, id: str | None) -> None:
        assert self.grant is not None
        if not grant.same_identity(self.grant):
            self.send_error(
                "invalid_auth",
                "auth cannot change the database or the actor of a connection: open another connection",
                id,
            )
            return
        if grant.claims != self.grant.claims:
            self._submit(link.UpdateClaims(conn=self.connection_id, claims=dict(grant.claims)))
        self.grant = grant
        self._acknowledge_auth(id)

    def on_opened(self, record: link.ConnectionOpened) -> None:
        """Mark the connection as open: the broker accepted the actor."""
        if self.state is not State.OPENING:
            return
        self.state = State.OPEN
        self._counters.opened += 1
        self._acknowledge_auth(record.id)
        self._dispatch_deferred()

    def _dispatch_deferred(self) -> None:
        """Dispatch the messages deferred in state OPENING. Called after success and after failure."""
        deferred, self._deferred = self._deferred or [], None
        self._reset_pending()
        for msg, self._size in deferred:
            try:
                self._dispatch(msg)
            except MessageError as error:
                self.send_error(error.code, error.text, error.id or msg.id)

    def _acknowledge_auth(self, id: str | None) -> None:
        window = self._limits.window
        payload: dict[str, Any] = {
            "status": "ok",
            "version": messages.VERSION,
            "serverTime": timestamp_to_text(self._now()),
            "heartbeatMs": int(self._limits.heartbeat_seconds * 1000),
            "window": {"ms": int(window.seconds * 1000), "events": window.events, "bytes": window.bytes},
        }
        if self.checksum:
            payload["checksum"] = "crc32c"
        self.send(encode_message("auth_ack", payload, id))

    # --- requests -----------------------------------------------------------------------------------------------

    def _request(self, record: Any, id: str | None) -> bool:
        """Submit a request to the broker, which answers every request exactly once. Return False if it was rejected
        here.
        """
        if self._pending >= self._limits.max_pending_requests:
            text = f"more than {self._limits.max_pending_requests} requests are pending: wait for replies"
            self.send_error("busy", text, id, retryable=True)
        elif not self._has_room():
            text = f"pending requests exceed {self._limits.max_pending_bytes} bytes: wait for replies"
            self.send_error("busy", text, id, retryable=True)
        elif not self._submit(record):
            self.send_error("busy", "the server is overloaded: try again later", id, retryable=True)
        else:
            self._pending += 1
            self._count_pending()
            return True
        return False

    def _has_room(self) -> bool:
        """Return True if the current message fits the byte limits of this connection and of the gateway."""
        pending = self._pending_bytes + self._size
        return (
            not self._pending_bytes or pending <= self._limits.max_pending_bytes
        ) and self._request_budget.has_room(self._size)

    def _count_pending(self) -> None:
        self._pending_bytes += self._size
        self._request_budget.pending_bytes += self._size

    def _reset_pending(self) -> None:
        self._request_budget.pending_bytes -= self._pending_bytes
        self._pending_bytes = 0

    def _execute(self, msg: Message) -> None:
        self._request(validation.execute_request(self.connection_id, msg), msg.id)

    def _define(self, msg: Message) -> None:
        assert self.grant is not None
        if not self.grant.is_system:
            self.send_error("forbidden", "define requires an administrator", msg.id)
            return
        self._request(
            link.ExecuteRequest(conn=self.connection_id, id=msg.id, kind="define", text=msg.payload.ontology),
            msg.id,
        )

    def _subscribe(self, msg: Message) -> None:
        payload, ignored = validation.check_subscribe(msg)
        assert msg.id is not None
        limit = self._limits.max_subscriptions_per_connection
        if msg.id not in self.subscriptions and len(self.subscriptions) >= limit:
            self._send_quota_error(msg.id, limit)
            return
        fields = msgspec.to_builtins(payload)
        if self._request(
            link.SubscribeRequest(conn=self.connection_id, sub_id=msg.id, payload=fields), msg.id
        ):
            self._set_options(
                msg.id, SubscribeOptions(payload.priority == "low", payload.max_unacked, ignored)
            )

    def _send_quota_error(self, id: str, limit: int) -> None:
        text = f"watch error: E8006 WATCH_LIMIT_EXCEEDED: Too many watches: {limit} of {limit}"
        fields = {"current": limit, "limit": limit}
        error = {"code": "E8006", "name": "WATCH_LIMIT_EXCEEDED", "message": text, "fields": fields}
        self.send(encode_message("error", error, id))

    def _set_options(self, sub_id: str, options: SubscribeOptions) -> None:
        self._remove_options(sub_id)
        if options == _DEFAULT_OPTIONS:
            return
        known = self._options or {}
        if len(known) >= self._limits.max_subscriptions_per_connection:
            # Drop the options of watches that ended on the server side.
            known = {name: each for name, each in known.items() if name in self.subscriptions}
        self._options = known | {sub_id: options}

    def _remove_options(self, sub_id: str) -> None:
        if self._options is not None and self._options.pop(sub_id, None) is not None and not self._options:
            self._options = None

    def _unsubscribe(self, msg: Message) -> None:
        self._remove_options(msg.payload.id)
        self._request(
            link.UnsubscribeRequest(conn=self.connection_id, id=msg.id, sub_id=msg.payload.id), msg.id
        )

    def _resume(self, msg: Message) -> None:
        self._request(validation.resume_request(self.connection_id, msg), msg.id)

    def _ack(self, msg: Message) -> None:
        payload: messages.Ack = msg.payload
        if payload.deliveryId is not None:
            self._settle(msg)
            return
        if payload.seq is None or not 0 <= payload.seq < 2**63:
            raise MessageError("invalid_payload", "ack: seq or deliveryId is required", msg.id)
        if payload.partition != 0:  # seq numbers are per partition, and every event is sent from partition 0
            raise MessageError("invalid_payload", "ack: partition must be 0", msg.id)
        named = self.subscriptions.get(payload.subId) if payload.subId is not None else None
        if payload.subId is not None and named is None:
            return  # the subscription ended in the meantime
        for sub in (named,) if payload.subId is not None else tuple(self.subscriptions.values()):
            if sub is not None and sub.on_ack(payload.seq):
                self.request_replay(sub)
        self._submit(link.AckEvents(conn=self.connection_id, sub_id=payload.subId, seq=payload.seq))

    def _settle(self, msg: Message) -> None:
        self._request(validation.settle_request(self.connection_id, msg), msg.id)

    def _manage(self, msg: Message) -> None:
        payload: messages.Manage = msg.payload
        sub = self.subscriptions.get(payload.subId)
        if sub is None:
            self.send_error(
                "unknown_subscription", "this connection has no subscription with this id", msg.id
            )
            return
        if payload.operation in ("pause", "resume") and not sub.credit_based:
            if payload.operation == "pause":
                sub.hold(HoldReason.PAUSED)
            elif sub.release(HoldReason.PAUSED):
                self.request_replay(sub)
            self.send(encode_message("manage_ack", {"subId": sub.id, "operation": payload.operation}, msg.id))
            return
        if payload.operation == "cancel":
            self._remove_options(sub.id)
        self._request(validation.manage_request(self.connection_id, msg), msg.id)

    def request_replay(self, sub: Subscription) -> None:
        """Request the events that a lagging subscription missed. If the request is rejected, the subscription must
        resync.
        """
        self._counters.replays += 1
        if not self._submit(link.ReplayRequest(conn=self.connection_id, sub_id=sub.id, seq=sub.seq)):
            self.require_resync(sub, "overflow")

    # --- outbound -----------------------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        self.sink.send(OutboundFrame(data))

    def send_error(self, code: str, text: str, id: str | None = None, *, retryable: bool = False) -> None:
        """Send an error detected by the server itself, without the broker."""
        self._counters.count_refused(code)
        payload: dict[str, Any] = {"code": code, "message": text}
        if retryable:
            payload["retryable"] = True
        self.send(encode_message("error", payload, id))

    def _request_finished(self) -> None:
        self._pending -= 1
        if not self._pending:
            self._reset_pending()

    def on_reply(self, data: bytes) -> None:
        self._request_finished()
        if data:
            self.send(data)

    def on_failed(self, record: link.RequestFailed) -> None:
        """Handle a request that the broker rejected."""
        if self.state is State.OPENING:
            self.state, self.grant = State.NEW, None
            self.send(encode_message("error", record.payload, record.id))
            if record.close:
                self.close(record.close, str(record.payload["code"]))
            else:
                self._dispatch_deferred()
            return
        self._request_finished()
        self.send(encode_message("error", record.payload, record.id))

    def on_subscribed(self, record: link.Subscribed) -> Subscription:
        """Register a subscription that the broker created, and send its first messages."""
        self._request_finished()
        options = (self._options or {}).get(record.sub_id, _DEFAULT_OPTIONS)
        sub = Subscription(
            record.sub_id,
            stream=record.stream,
            seq=record.seq,
            recipient_json=self.recipient_json((record.sub_id,)),
            low_priority=options.low_priority,
            max_unacked=options.max_unacked if not record.credit_based else None,
            credit_based=record.credit_based,
        )
        self.subscriptions[record.sub_id] = sub
        for index, data in enumerate(record.messages):
            self.send(add_ignored_fields(data, options.ignored) if options.ignored and index == 0 else data)
        return sub

    def recipient_json(self, sub_ids: tuple[str, ...]) -> bytes:
        """Return the JSON that names the receivers of an event. Clients before version 1 know only `subId`."""
        first = messages.encode(sub_ids[0])
        return first if self.version < 1 else first + b',"subIds":' + messages.encode(sub_ids)

    def require_resync(self, sub: Subscription, reason: str) -> None:
        """Send the client one resync-required status for the subscription."""
        if sub.mark_stale():
            self._counters.count_resync(reason)
            payload = {"status": "resync-required", "subIds": [sub.id], "partitions": [0], "reason": reason}
            self.send(encode_message("status", payload))

    def expire(self, now: datetime) -> bool:
        """Close the connection if its token has expired. Return True if it was closed."""
        grant = self.grant
        if grant is None or grant.expires_at is None or grant.expires_at > now:
            return False
        for sub in self.subscriptions.values():
            self.require_resync(sub, "auth")
        self.close(CloseCode.AUTH_EXPIRED, "the token has expired")
        return True

    def close(self, code: int, reason: str) -> None:
        """Close the connection from the server side. Later calls have no effect."""
        if self.state is not State.CLOSED:
            self.state = State.CLOSED
            self._counters.count_closed(code)
            self.sink.close(code, reason)

    def send_heartbeat(self) -> None:
        self.sink.send(_HEARTBEAT)

    def on_disconnect(self) -> None:
        """Release the connection's state after the client has disconnected. Pending requests need no reply."""
        self.state = State.CLOSED
        self._reset_pending()


MESSAGES: Mapping[str, Callable[[Connection, Message], None]] = {
    "execute": Connection._execute,
    "define": Connection._define,
    "subscribe": Connection._subscribe,
    "unsubscribe": Connection._unsubscribe,
    "resume": Connection._resume,
    "ack": Connection._ack,
    "nack": Connection._settle,
    "extend": Connection._settle,
    "manage": Connection._manage,
}
"""Handlers of an open connection by message type; `auth` and `heartbeat` are handled before the lookup."""
