"""The subscription table: quotas, idle streams, audit log."""

from __future__ import annotations

import logging

import pytest

from tests.support.gateway_streams import StreamBench
from vedette.errors import WatchError
from vedette.gateway.limits import GatewayLimits, ReplayLimits
from vedette.gateway.streams import subscription_table


def make_bench(**limits: int) -> StreamBench:
    return StreamBench(GatewayLimits(window=ReplayLimits(seconds=60.0), **limits))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "limit",
    ["max_subscriptions_per_connection", "max_subscriptions_per_tenant", "max_subscriptions_total"],
)
def test_a_subscription_above_a_quota_is_refused(limit: str):
    bench = make_bench(**{limit: 1})
    client = bench.client()
    bench.subscriptions.check_quotas(client, "a")
    bench.subscriptions.add(client, "a", bench.stream())
    bench.subscriptions.check_quotas(client, "a")  # an id in use is replaced
    with pytest.raises(WatchError, match="Too many watches: 1 of 1") as failed:
        bench.subscriptions.check_quotas(client, "b")
    assert failed.value.code == "E8006"


def test_a_stream_without_subscribers_is_closed():
    bench = make_bench()
    client, stream = bench.client(), bench.stream()
    bench.subscriptions.add(client, "s", stream)
    assert (bench.subscriptions.count, bench.subscriptions.stream_count, bench.tenant.subscriptions) == (
        1,
        1,
        1,
    )
    bench.subscriptions.remove(client, "s")
    assert (bench.subscriptions.count, bench.subscriptions.stream_count, bench.tenant.subscriptions) == (
        0,
        0,
        0,
    )
    assert not bench.tenant.streams


def test_a_stream_that_a_client_may_resume_is_kept_until_its_deadline():
    bench = make_bench()
    client, stream = bench.client(), bench.stream()
    bench.subscriptions.add(client, "s", stream)
    bench.subscriptions.remove(client, "s", may_resume=True)
    bench.clock.advance(59)
    bench.subscriptions.evict_idle()
    assert stream.stream_key in bench.tenant.streams
    bench.clock.advance(2)
    bench.subscriptions.evict_idle()
    assert not bench.tenant.streams
    assert bench.subscriptions.stream_count == 0


def test_a_stream_that_was_resumed_is_not_evicted():
    bench = make_bench()
    client, stream = bench.client(), bench.stream()
    bench.subscriptions.add(client, "s", stream)
    bench.subscriptions.remove(client, "s", may_resume=True)
    bench.subscriptions.add(client, "s", stream)
    bench.clock.advance(61)
    bench.subscriptions.evict_idle()
    assert stream.stream_key in bench.tenant.streams


def test_idle_streams_are_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(subscription_table, "MAX_IDLE_STREAMS", 1)
    bench = make_bench()
    client = bench.client()
    for key in (b"a" * 16, b"b" * 16):
        bench.subscriptions.add(client, "s", bench.stream(key))
        bench.subscriptions.remove(client, "s", may_resume=True)
    assert list(bench.tenant.streams) == [b"a" * 16]


def test_the_subscribers_of_streams_are_found():
    bench = make_bench()
    one, other = bench.client(1), bench.client(2)
    stream, another = bench.stream(b"a" * 16), bench.stream(b"b" * 16)
    bench.subscriptions.add(one, "x", stream)
    bench.subscriptions.add(one, "y", another)
    bench.subscriptions.add(other, "z", stream)
    assert bench.subscriptions.subscribers_of({stream}) == [(one, "x"), (other, "z")]
    assert bench.subscriptions.is_subscribed(one, "x", stream)
    assert not bench.subscriptions.is_subscribed(one, "x", another)


def test_subscriptions_are_in_the_audit_log(caplog: pytest.LogCaptureFixture):
    bench = make_bench()
    client = bench.client()
    with caplog.at_level(logging.INFO, "vedette.gateway.audit"):
        bench.subscriptions.add(client, "s", bench.stream())
        bench.subscriptions.remove(client, "s")
    assert [(record.action, record.sub, record.tenant) for record in caplog.records] == [  # type: ignore[attr-defined]
        ("subscription.created", "s", "default"),
        ("subscription.ended", "s", "default"),
    ]
