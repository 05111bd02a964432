"""A connection at the broker: its actor, its claims, and deferred requests."""

from __future__ import annotations

from tests.support.gateway_streams import StreamBench
from vedette.gateway.wire import broker_link as link


def test_the_system_context_has_no_auth():
    client = StreamBench().client()
    assert (client.effective_actor, client.token_actor, client.request_auth()) == (None, None, None)


def test_filters_read_the_claims_of_the_token():
    client = StreamBench().client(actor="u1")
    client.update_claims({"roles": ["x"], "level": 3, "nested": {"no": 1}})
    assert client.request_auth() == {
        "userId": "u1",
        "roles": ["x"],
        "claims": {"roles": ["x"], "level": 3},
    }


def test_only_the_latest_ack_of_a_subscription_is_deferred():
    client = StreamBench().client()
    for seq in (3, 7, 5):
        client.defer(link.AckEvents(conn=1, sub_id="a", seq=seq))
    request = link.UnsubscribeRequest(conn=1, id=None, sub_id="a")
    client.defer(request)
    assert [ack.seq for ack in client.take_deferred_acks()] == [7]
    assert client.take_deferred_acks() == []
    assert list(client.deferred_requests or ()) == [request]


def test_a_connection_has_one_session_with_its_limits():
    bench = StreamBench()
    client = bench.client()
    session = client.own_session()
    assert client.own_session() is session
    settings = bench.catalog.settings
    assert session.watch_limits == (settings.max_watches_per_session, settings.max_watches_total)
