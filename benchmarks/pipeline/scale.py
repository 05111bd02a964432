"""python -m benchmarks.pipeline.scale: how many executors and gateways a load needs, and a simulation of the plan.

`plan` divides the load by measured figures. `simulate` lets changes arrive, batches run, gateways send and machines
die, and measures what clients see. The two are independent, so that a mistake in one shows (docs/design/scale.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

__all__ = ["Figures", "Load", "Outcome", "Plan", "plan", "simulate"]


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Measured on shared cores; where runs differ, the worse one."""

    matched_per_core: float = 25_000.0
    """Events per second through normalize … route on one core, 1,000,000 subscriptions (`benchmarks.pipeline`)."""
    batch_seconds: float = 0.110
    """Fixed cost of a batch (`benchmarks.pipeline.latency`)."""
    frames_per_gateway: float = 40_000.0
    """Frames per second that a gateway process writes (`benchmarks.gateway`)."""
    connections_per_gateway: int = 18_000
    """Connections that one process serves well."""
    bytes_per_connection: int = 8_000
    resumes_per_second: float = 500.0
    """Resumes that one gateway process answers."""
    index_bytes: int = 70
    """Bytes of a subscription in the index."""


@dataclass(frozen=True, kw_only=True)
class Load:
    """The default is the largest size that the pipeline is designed for."""

    connections: int = 1_000_000
    events_per_second: float = 10_000.0
    matches: float = 5.0
    """Subscriptions that one event matches, each on its own connection."""
    burst: float = 2.0
    """Factor of the rate for some seconds."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    executor_cores: int
    gateways: int
    """Processes."""
    gateway_bytes: int
    """Memory of the connections of one gateway."""
    index_bytes: int
    """Shared by all workers of a machine."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    p50_ms: float
    p99_ms: float
    """Delay of a change, from the journal to the client's socket."""
    behind_seconds: float
    """Maximum age of an undelivered change."""
    busiest_gateway: float
    """Share of the time that the busiest gateway was writing, without the burst."""
    away_seconds: float
    """Seconds until the last client of a dead gateway has reconnected."""
    lost: int


HEADROOM = 0.6
"""Maximum planned load of each part."""


def plan(load: Load, figures: Figures) -> Plan:
    """Plan one executor core and one gateway more than needed, because one of each may die."""
    peak = load.events_per_second * load.burst
    cores = math.ceil(peak / (figures.matched_per_core * HEADROOM)) + 1
    by_connections = load.connections / figures.connections_per_gateway
    by_frames = peak * load.matches / (figures.frames_per_gateway * HEADROOM)
    gateways = math.ceil(max(by_connections, by_frames)) + 1
    return Plan(
        executor_cores=max(2, cores),
        gateways=gateways,
        gateway_bytes=math.ceil(load.connections / gateways) * figures.bytes_per_connection,
        index_bytes=load.connections * figures.index_bytes,
    )


class _World:
    """Time advances batch by batch. The changes of a batch arrive at the gateways when it ends."""

    def __init__(self, planned: Plan, load: Load, figures: Figures, seed: int) -> None:
        self.plan, self.load, self.figures = planned, load, figures
        self.chance = np.random.default_rng(seed)
        self.now = 0.0
        self.cores = planned.executor_cores
        self.alive = np.ones(planned.gateways, np.bool_)
        self.free = np.zeros(planned.gateways)
        """Time at which each gateway has written everything."""
        self.busy = np.zeros(planned.gateways)
        self.waiting = np.empty(0)
        """Append times of undelivered changes."""
        self.delays: list[np.ndarray] = []
        self.arrived = self.delivered = 0
        self.behind = 0.0

    def rate(self) -> float:
        burst = self.load.burst if 20.0 <= self.now < 25.0 else 1.0
        return self.load.events_per_second * burst

    def arrive(self, seconds: float) -> None:
        count = int(self.chance.poisson(self.rate() * seconds))
        self.arrived += count
        moments = self.now + np.sort(self.chance.random(count)) * seconds
        self.waiting = np.concatenate([self.waiting, moments])

    def batch(self) -> None:
        """Deliver up to 20,000 waiting changes."""
        taken, self.waiting = self.waiting[:20_000], self.waiting[20_000:]
        spread = 1.25  # the largest share of the partitions, relative to the mean
        work = len(taken) * spread / (self.figures.matched_per_core * max(1, self.cores))
        seconds = self.figures.batch_seconds + work
        self.arrive(seconds)
        self.now += seconds
        if len(taken):
            self.deliver(taken)
        if len(self.waiting):
            self.behind = max(self.behind, self.now - self.waiting[0])

    def deliver(self, taken: np.ndarray) -> None:
        """Distribute frames over the gateways; each gateway writes them one after the other."""
        frames = self.chance.poisson(self.load.matches, len(taken))
        there = np.flatnonzero(self.alive)
        counts = self.chance.multinomial(int(frames.sum()), np.full(len(there), 1 / len(there)))
        seconds = counts / self.figures.frames_per_gateway
        begin = np.maximum(self.free[there], self.now)
        self.free[there] = begin + seconds
        self.busy[there] += seconds
        # The position of a change's frame among those of its gateway is random.
        chosen = self.chance.integers(0, len(there), len(taken))
        sent = begin[chosen] + self.chance.random(len(taken)) * seconds[chosen]
        self.delays.append(sent - taken)
        self.delivered += len(taken)

    def lose_a_core(self) -> None:
        """An interrupted batch runs again, so its time is spent twice."""
        self.cores -= 1
        spent = self.figures.batch_seconds
        self.arrive(spent)
        self.now += spent

    def lose_a_gateway(self) -> float:
        """Its clients reconnect to other gateways. Return the seconds until the last one has reconnected."""
        self.alive[0] = False
        clients = self.load.connections / self.plan.gateways
        return clients / (self.figures.resumes_per_second * int(self.alive.sum()))


def simulate(planned: Plan, load: Load, figures: Figures, *, seconds: float = 60.0, seed: int = 1) -> Outcome:
    """Simulate a minute with a burst; halfway, a core and a gateway die. Deterministic for a seed."""
    world, away, struck = _World(planned, load, figures, seed), 0.0, False
    while world.now < seconds:
        if world.now >= seconds / 2 and not struck:
            struck = True
            world.lose_a_core()
            away = world.lose_a_gateway()
        world.batch()
    while len(world.waiting):
        rest = replace(load, events_per_second=0.0)
        world.load = rest
        world.batch()
    delays = np.concatenate(world.delays) * 1000
    return Outcome(
        p50_ms=float(np.median(delays)),
        p99_ms=float(np.quantile(delays, 0.99)),
        behind_seconds=world.behind,
        busiest_gateway=float(world.busy.max() / world.now),
        away_seconds=away,
        lost=world.arrived - world.delivered,
    )


def main() -> None:
    load, figures = Load(), Figures()
    planned = plan(load, figures)
    for name, tried in (
        ("as planned", planned),
        ("half the gateways", replace(planned, gateways=planned.gateways // 2)),
        ("one core", replace(planned, executor_cores=1)),
    ):
        found = simulate(tried, load, figures)
        print(
            f"{name}: {tried.executor_cores} executor cores, {tried.gateways} gateway processes "
            f"({load.connections / tried.gateways:,.0f} connections each): p50 {found.p50_ms:.0f} ms, "
            f"p99 {found.p99_ms:.0f} ms, {found.behind_seconds:.1f} s behind at worst, "
            f"busiest gateway {found.busiest_gateway:.0%}, clients reconnected in {found.away_seconds:.1f} s, "
            f"lost {found.lost}"
        )
    print(
        f"{planned.gateway_bytes / 2**20:,.0f} MB a gateway, index {planned.index_bytes / 2**20:,.0f} MB a machine"
    )


if __name__ == "__main__":
    main()
