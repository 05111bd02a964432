"""Timers of all connections: deadlines, heartbeats and token expiry."""

from __future__ import annotations

from datetime import datetime, timedelta

from vedette.gateway.server.timers import ConnectionTimers
from vedette.testing import ManualClock


class FakeConnection:
    def __init__(self) -> None:
        self.bucket = 0
        self.calls: list[str] = []

    def send_heartbeat(self) -> None:
        self.calls.append("heartbeat")

    def check(self, now: float) -> None:
        self.calls.append("check")

    def expire(self, moment: datetime) -> None:
        self.calls.append("expire")


def test_a_new_connection_is_checked_until_its_deadline_is_removed():
    timers, connection = ConnectionTimers(ManualClock(), heartbeat_seconds=30.0), FakeConnection()
    timers.add(connection)
    timers.check()
    timers.with_deadline.discard(connection)
    timers.check()
    assert connection.calls == ["check"]


def test_each_connection_gets_one_heartbeat_per_interval():
    timers = ConnectionTimers(ManualClock(), heartbeat_seconds=30.0)
    connections = [FakeConnection() for _ in range(40)]
    for connection in connections:
        timers.add(connection)
    for _ in range(16):
        timers._send_heartbeats()
    assert all(connection.calls == ["heartbeat"] for connection in connections)
    timers.remove(connections[0])
    for _ in range(16):
        timers._send_heartbeats()
    assert [len(connection.calls) for connection in connections] == [1] + [2] * 39


def test_a_newer_token_replaces_the_earlier_expiry():
    clock = ManualClock()
    timers, connection = ConnectionTimers(clock, heartbeat_seconds=30.0), FakeConnection()
    timers.add(connection)
    timers.with_deadline.clear()
    timers.schedule_expiry(connection, (clock.now() + timedelta(seconds=5)).timestamp())
    timers.schedule_expiry(connection, (clock.now() + timedelta(seconds=10)).timestamp())
    clock.advance(6)
    timers.check()
    assert connection.calls == []
    clock.advance(5)
    timers.check()
    timers.check()
    assert connection.calls == ["expire"]


def test_a_removed_connection_is_not_expired():
    clock = ManualClock()
    timers, connection = ConnectionTimers(clock, heartbeat_seconds=30.0), FakeConnection()
    timers.add(connection)
    timers.schedule_expiry(connection, clock.now().timestamp())
    timers.remove(connection)
    timers.check()
    assert connection.calls == []
