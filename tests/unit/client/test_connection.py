"""Addresses of servers, and the delay before the next connection."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette.client.connection import Backoff, Endpoint
from vedette.errors import GatewayError


@given(st.integers(0, 2**32), st.integers(0, 40))
def test_delays_are_random_below_a_bound_that_doubles(seed: int, tries: int):
    backoff = Backoff(Random(seed), base_seconds=0.1, cap_seconds=5)
    delays = [backoff.next_delay() for _ in range(tries)]
    assert all(0 <= delay <= min(5, 0.1 * 2**n) for n, delay in enumerate(delays))
    backoff.reset()
    assert backoff.next_delay() <= 0.1


def endpoint(url: str, token: object = "") -> Endpoint:
    return Endpoint(url, database="d", token=token, timeout=1.0, tls=None, local_socket=None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("ws://localhost:7707", "ws://localhost:7707/realtime/ws"),
        ("wss://example.org/", "wss://example.org/realtime/ws"),
        ("ws://proxy/vedette/ws?a=1", "ws://proxy/vedette/ws?a=1"),
    ],
)
def test_an_address_without_a_path_gets_the_realtime_path(url: str, expected: str):
    assert endpoint(url).url == expected


@pytest.mark.parametrize("url", ["http://localhost", "localhost:7707", "ws://", ""])
def test_another_address_is_refused_with_an_example(url: str):
    with pytest.raises(GatewayError, match="use ws://host:7707 or wss://host:7707"):
        endpoint(url)


def test_only_a_token_function_can_provide_another_token():
    assert not endpoint("ws://h", "token").can_refresh_token
    assert endpoint("ws://h", lambda: "token").can_refresh_token
