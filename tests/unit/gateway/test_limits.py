"""Gateway limits follow the settings."""

from __future__ import annotations

import pytest

from vedette.filters.limits import FilterLimits
from vedette.gateway.limits import GatewayLimits, ReplayLimits
from vedette.settings import Settings


@pytest.mark.parametrize(
    ("setting", "limit"),
    [
        ("max_frame_bytes", "max_frame_bytes"),
        ("max_connections", "max_connections"),
        ("max_connections_per_tenant", "max_connections_per_tenant"),
        ("max_watches_per_session", "max_subscriptions_per_connection"),
        ("max_subscriptions_per_gateway", "max_subscriptions_per_gateway"),
        ("max_subscriptions_per_tenant", "max_subscriptions_per_tenant"),
        ("max_subscriptions_total", "max_subscriptions_total"),
        ("heartbeat_seconds", "heartbeat_seconds"),
        ("outbox_high_bytes", "outbox_high_bytes"),
        ("gateway_outbox_bytes", "gateway_outbox_bytes"),
    ],
)
def test_each_setting_sets_its_limit_and_no_other(setting: str, limit: str):
    defaults = GatewayLimits.from_settings(Settings())
    value = getattr(Settings(), setting) * 2
    changed = GatewayLimits.from_settings(Settings(**{setting: value}))
    assert getattr(changed, limit) == value
    differing = {
        name for name in GatewayLimits.__slots__ if getattr(changed, name) != getattr(defaults, name)
    }
    assert differing <= {limit, "outbox_low_bytes"}


@pytest.mark.parametrize("high", [1_048_576, 4_096, 1_024])
def test_the_low_mark_of_an_outbox_is_below_the_high_mark(high: int):
    limits = GatewayLimits.from_settings(Settings(outbox_high_bytes=high))
    assert limits.outbox_low_bytes < limits.outbox_high_bytes


def test_replay_and_filter_limits_follow_their_settings():
    settings = Settings(
        replay_seconds=7,
        replay_events=8,
        replay_bytes=9,
        max_filter_bytes=10,
        max_filter_depth=11,
        max_filter_nodes=12,
        max_filter_items=13,
    )
    limits = GatewayLimits.from_settings(settings)
    assert limits.window == ReplayLimits(seconds=7, events=8, bytes=9)
    assert limits.filters == FilterLimits(source_bytes=10, depth=11, nodes=12, list_items=13)
