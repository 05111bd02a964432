"""Limits of a gateway, each with its unit, read from the settings."""

from __future__ import annotations

from dataclasses import dataclass

from vedette.filters.limits import DEFAULT_FILTER_LIMITS, FilterLimits
from vedette.settings import Settings

__all__ = ["GatewayLimits", "ReplayLimits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayLimits:
    """Bounds of one database's replay window. When any of them is exceeded, the oldest event is evicted."""

    seconds: float = 180.0
    events: int = 10_000
    bytes: int = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayLimits:
    max_frame_bytes: int = 1_048_576
    first_frame_bytes: int = 65_536
    """Frame limit before authentication."""
    max_connections: int = 100_000
    max_connections_per_tenant: int = 100_000
    max_subscriptions_per_connection: int = 1_000
    max_subscriptions_per_gateway: int = 200_000
    max_subscriptions_per_tenant: int = 1_000_000
    max_subscriptions_total: int = 2_000_000
    max_pending_requests: int = 256
    """Unanswered requests of one connection."""
    max_pending_bytes: int = 8_388_608
    """Bytes of the unanswered requests of one connection."""
    gateway_pending_bytes: int = 268_435_456
    """Bytes of the unanswered requests of all connections of a gateway."""
    auth_seconds: float = 10.0
    heartbeat_seconds: float = 30.0
    stalled_seconds: float = 30.0
    """Time without progress after which a client that does not read is disconnected."""
    outbox_high_bytes: int = 1_048_576
    outbox_low_bytes: int = 262_144
    outbox_excess_bytes: int = 67_108_864
    """Bytes above the high mark that a stalled client may accumulate from replies and credited deliveries, which are
    never held; beyond them it is disconnected.
    """
    max_answer_bytes: int = 33_554_432
    """Size limit of one message to a client. A larger one is rejected, or ends its watch, with `too_large`."""
    stream_outbox_bytes: int = 65_536
    """High mark of a reader of server-sent events, in addition to the 64 KiB buffer of its socket."""
    gateway_outbox_bytes: int = 268_435_456
    """Limit on the outbox bytes of all clients of a gateway; shedding starts at 70 % and 90 % of it."""
    window: ReplayLimits = ReplayLimits()
    filters: FilterLimits = DEFAULT_FILTER_LIMITS

    @classmethod
    def from_settings(cls, settings: Settings) -> GatewayLimits:
        return cls(
            max_frame_bytes=settings.max_frame_bytes,
            max_connections=settings.max_connections,
            max_connections_per_tenant=settings.max_connections_per_tenant,
            max_subscriptions_per_connection=settings.max_watches_per_session,
            max_subscriptions_per_gateway=settings.max_subscriptions_per_gateway,
            max_subscriptions_per_tenant=settings.max_subscriptions_per_tenant,
            max_subscriptions_total=settings.max_subscriptions_total,
            heartbeat_seconds=settings.heartbeat_seconds,
            outbox_high_bytes=settings.outbox_high_bytes,
            outbox_low_bytes=min(settings.outbox_high_bytes // 4, settings.outbox_high_bytes - 1),
            gateway_outbox_bytes=settings.gateway_outbox_bytes,
            window=ReplayLimits(
                seconds=settings.replay_seconds, events=settings.replay_events, bytes=settings.replay_bytes
            ),
            filters=FilterLimits(
                source_bytes=settings.max_filter_bytes,
                depth=settings.max_filter_depth,
                nodes=settings.max_filter_nodes,
                list_items=settings.max_filter_items,
            ),
        )
