"""Sizes of a run: full for published numbers, quick to check that everything works."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FULL", "QUICK", "Scale"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Sizes of one run. A contender known to be slow gets a share of the counts: rates and times stay comparable."""

    name: str
    step_seconds: float
    """Time limit for one step of a case: the set-up of a contender, or one measurement."""
    rounds: int
    """Rounds of each contender; their median is reported."""
    disk_rounds: int
    """Rounds where the disk is waited for: many short ones, because a shared disk can stall for seconds."""
    load_rounds: int
    """Rounds of opening a directory, each in a new process."""
    inserts: int
    """Inserts in memory per round."""
    commits: int
    """Durable commits per round from one thread."""
    shared_commits: int
    """Durable commits per round from all threads or tasks together."""
    writers: int
    """Threads or tasks that write at once."""
    nodes: int
    """Nodes in the directory that is loaded."""
    edges: int
    """Edges of the graph that is read, half of each kind."""
    look_ups: int
    """Point look-ups and trivial statements per round."""
    hops: int
    """Walks over two edges per round."""
    changes: int
    """Changes per round that send events to watches."""
    watches: int
    """Active watches with different constants."""
    registered: int
    """Watches created to measure their memory."""
    paced_seconds: float
    """Seconds of changes at a steady rate per round, where latency is measured."""
    messages: int
    """Queue items per round that are put or taken one after the other, each waiting for the disk."""
    shared_messages: int
    """Queue items per round where many wait for the disk together."""
    queue_rounds: int
    """As `disk_rounds`, for cases where every contender has a server."""
    backlog: int
    """Waiting queue items with a priority."""
    connections: int
    """Connections, each with its own watch."""
    connections_seconds: float
    """Seconds of 1,000 events per second for these connections."""
    audience: int
    """Connections with the same watch, and connections of the reconnect storm."""
    readers: int
    """Connections that receive one message as fast as possible."""


FULL = Scale(
    name="full",
    step_seconds=3_600,
    rounds=7,
    disk_rounds=31,
    load_rounds=3,
    inserts=100_000,
    commits=800,
    shared_commits=6_400,
    writers=32,
    nodes=1_000_000,
    edges=1_000_000,
    look_ups=10_000,
    hops=2_000,
    changes=20_000,
    watches=100_000,
    registered=1_000_000,
    paced_seconds=5,
    messages=400,
    shared_messages=3_200,
    queue_rounds=9,
    backlog=1_000_000,
    connections=100_000,
    connections_seconds=60,
    audience=10_000,
    readers=1_000,
)

QUICK = Scale(
    name="quick",
    step_seconds=600,
    rounds=3,
    disk_rounds=9,
    load_rounds=1,
    inserts=10_000,
    commits=200,
    shared_commits=1_600,
    writers=32,
    nodes=50_000,
    edges=50_000,
    look_ups=3_000,
    hops=500,
    changes=5_000,
    watches=10_000,
    registered=50_000,
    paced_seconds=2,
    messages=100,
    shared_messages=640,
    queue_rounds=3,
    backlog=20_000,
    connections=2_000,
    connections_seconds=3,
    audience=1_000,
    readers=200,
)
