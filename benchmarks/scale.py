"""How much is measured: the full run for numbers to keep, the quick one to see whether something broke."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FULL", "QUICK", "Scale"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Sizes of one run. A contender known to be slow gets a share of the counts: rates and times stay comparable."""

    name: str
    step_seconds: float
    """Limit for one step of a case: a contender that gets ready, or one measurement."""
    rounds: int
    """How often every contender of a case is measured; the medians of these are reported."""
    disk_rounds: int
    """The same where the disk is waited for: many and short, because a shared disk stalls for seconds at a time."""
    load_rounds: int
    """The same for the loading of a directory, where each round is a process of its own."""
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
    """Changes per round that watches are told of."""
    watches: int
    """Watches with different constants that stand at once."""
    registered: int
    """Watches that are made for their memory to be counted."""
    paced_seconds: float
    """How long changes come at a steady pace per round, where delays are measured."""
    messages: int
    """Queue items per round that are put or taken one after the other, each waiting for the disk."""
    shared_messages: int
    """The same where many wait for the disk together."""
    queue_rounds: int
    """As `disk_rounds`, where every contender has a server."""
    backlog: int
    """Queue items that wait under a priority."""
    crowd: int
    """Connections with a watch each."""
    crowd_seconds: float
    """How long they are told 1,000 events a second."""
    audience: int
    """Connections with the same watch; and connections that come back at once."""
    readers: int
    """Connections that a message is told to as fast as it goes."""


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
    crowd=100_000,
    crowd_seconds=60,
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
    crowd=2_000,
    crowd_seconds=3,
    audience=1_000,
    readers=200,
)
