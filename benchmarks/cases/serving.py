"""The gateway: many connections, one shared watch, fan-out, latency, a reconnect storm.

`python -m benchmarks.gateway` runs one of these cases with other sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import uvloop

from benchmarks.case import Case, Contender, Measure, Metric, Setting
from benchmarks.gateway.connections import many_connections
from benchmarks.gateway.fanout import measure_fan_out
from benchmarks.gateway.load import Figures, Load, one_watch, reconnect_storm
from benchmarks.gateway.pushers import PUSHERS, Pusher
from benchmarks.gateway.served import served

__all__ = ["CASES"]

CONNECTIONS_PER_WORKER = 17_000
"""Connections per worker: a process has at most 20,000 open files."""
_DURABLE = "every change is committed with fsync before it is delivered"


def _vedette(
    run: Callable[[Load], Any],
    size: Callable[[Setting], tuple[int, float, float]],
    numbers: Callable[[Figures], tuple[float, ...]],
) -> Contender:
    """`size` returns connections, events per second, seconds."""

    @contextmanager
    def start(setting: Setting) -> Iterator[Measure]:
        connections, rate, seconds = size(setting)
        workers = -(-connections // CONNECTIONS_PER_WORKER) if connections > CONNECTIONS_PER_WORKER else 0
        places = iter(range(1_000))

        def measure() -> tuple[float, ...]:
            with served(setting.folder / f"data-{next(places)}", workers) as (port, pids):
                load = Load(port, pids, connections, rate, seconds)
                return numbers(uvloop.run(run(load)))

        yield measure

    return Contender(name="vedette", start=start, about=_DURABLE)


def _push_server(pusher: Pusher) -> Contender:
    @contextmanager
    def start(setting: Setting) -> Iterator[Measure]:
        missing = pusher.missing()
        if missing is not None:
            raise RuntimeError(f"{pusher.name} is not installed: {missing}")

        def measure() -> tuple[float, ...]:
            found = uvloop.run(measure_fan_out(pusher, setting.scale.readers, setting.scale.paced_seconds))
            return found["per_second"], found["per_cpu_second"]

        yield measure

    about = _DURABLE if pusher.name == "vedette" else "a message is delivered and not stored"
    begin: Callable[[Setting], AbstractContextManager[Measure]] = start
    return Contender(name=pusher.name, start=begin, about=about)


CASES = (
    Case(
        name="connections",
        title="Many connections, each with its own watch",
        metrics=(
            Metric(name="events delivered exactly once", unit="%", goal=100, more_is_better=True),
            Metric(name="from the statement to the frame, p99", unit="ms", goal=250),
            Metric(name="server memory, a connection with its watch", unit="bytes", goal=8_192),
        ),
        contenders=(
            _vedette(
                many_connections,
                lambda s: (s.scale.connections, 1_000, s.scale.connections_seconds),
                lambda f: (100.0 * f["delivered_once"], f["p99_ms"], f["bytes_per_connection"]),
            ),
        ),
        rounds=lambda _: 1,
        method="100,000 connections from seven processes, 1,000 events a second for a minute, each for one of them; "
        "six gateway workers. The memory is that of all server processes.",
    ),
    Case(
        name="audience",
        title="One watch for all connections",
        metrics=(
            Metric(name="from the statement to the frame, mean", unit="ms", goal=500),
            Metric(name="the same, p99", unit="ms", goal=1_000),
        ),
        contenders=(
            _vedette(
                one_watch,
                lambda s: (s.scale.audience, 1, 2 * s.scale.paced_seconds),
                lambda f: (f["mean_ms"], f["p99_ms"]),
            ),
        ),
        rounds=lambda scale: min(3, scale.rounds),
        method="10,000 connections with the same watch, one event a second; an event that is missing is an error.",
    ),
    Case(
        name="fan-out",
        title="One message to 1,000 connections",
        metrics=(
            Metric(
                name="messages delivered", unit="/s", more_is_better=True, times=1, against="ws and Socket.IO"
            ),
            Metric(name="messages delivered per second of the server's CPU", unit="/s", more_is_better=True),
        ),
        contenders=tuple(_push_server(pusher) for pusher in PUSHERS),
        rounds=lambda scale: min(3, scale.rounds),
        method="A message is published when all readers have all but the last four; one server process each.",
    ),
    Case(
        name="delivery-latency",
        title="From execute to the frame at another client",
        metrics=(
            Metric(name="delay over the network, p50", unit="ms", goal=2),
            Metric(name="delay over the network, p99", unit="ms", goal=8),
        ),
        contenders=(
            _vedette(
                one_watch,
                lambda s: (1, 200, s.scale.paced_seconds),
                lambda f: (f["p50_ms"], f["p99_ms"]),
            ),
        ),
        rounds=lambda scale: min(3, scale.rounds),
        method="200 changes a second, one writer, one reader, fsync.",
    ),
    Case(
        name="reconnect-storm",
        title="All clients lose their connection and reconnect at once",
        metrics=(
            Metric(name="until all have resumed", unit="s", goal=15),
            Metric(name="commits meanwhile, of those before", unit="%", goal=50, more_is_better=True),
        ),
        contenders=(
            _vedette(
                reconnect_storm,
                lambda s: (s.scale.audience, 200, s.scale.paced_seconds),
                lambda f: (
                    f["seconds"],
                    100 * f["written_per_second_meanwhile"] / f["written_per_second_before"],
                ),
            ),
        ),
        rounds=lambda scale: min(3, scale.rounds),
        method="10,000 connections with a watch each, cut at once; each connects, authenticates and resumes.",
    ),
)
