"""docs/design/benchmarks.md, written from a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby

from benchmarks.case import Outcome
from benchmarks.record import Run
from benchmarks.wording import goal_words, ratio_words, value_words, verdict

__all__ = ["page"]

_HEAD = """# Benchmarks

<!-- Written by `python -m benchmarks --markdown`; edit benchmarks/page.py, not this file. -->

What Vedette does on one machine, beside others asked the same. `make bench` measures it again (`make bench
ARGS=--quick`: in a few minutes; `ARGS="--only watch-filter"`: one case) and installs the others first; `benchmarks/` is
how. Absolute times belong to this machine and this hour; ratios travel better.
"""

_METHOD = """
## How to read it

Every case runs in a process of its own. All its contenders are ready before the first round, then take turns, round by
round, each round begun by another. A number is the median of the rounds, ± half the distance between the quartiles. A
ratio is the median, over the rounds, of ours against theirs in the same round: above 1 Vedette is that many times as
fast (or as small), below 1 the other is. "≈" marks a ratio of single measurements, or of rounds that lay more than 20%
apart: a rough idea, not to be quoted. No sample is thrown away. Answers are checked; who answers something else is not
in the table. Nothing here fails a build.

The disk of this machine is shared and now and then drops to a tenth of its speed for some seconds. A few long rounds
then say who was unlucky, not who is slow (one such run showed Vedette eight times as fast as SQLite with the same
durability, which steadier ones do not bear out). So the cases that wait for the disk have many short rounds, and the
bare disk takes its turn among the contenders.

Engines that can be embedded are called from Python, in process, with their own Python packages: a call across that
border is part of what a user pays. Vedette is the only one of them written in Python. The databases for Node run in a
Node process, where changes and events stay. Queue servers run beside the Python process, on the same two cores.

This machine has two cores and may be shared: where the line above says a load well over 1, everybody was slowed down by
others, whoever has several threads or processes more than the rest, and absolute figures are lower bounds.
"""

_DURABILITY = """
## What each one's "committed" means

Seen by counting system calls (`strace -f -e trace=fsync,fdatasync`) over 500 inserts, one by one:

| | as configured here | syncs seen |
| --- | --- | --- |
| Vedette | `durability="fsync"`, the default | 500 |
| SQLite | `journal_mode=WAL`, `synchronous=FULL` | 503, three of them for a checkpoint |
| CozoDB on SQLite | nothing to configure; four a commit, so a rollback journal | 2,000 |
| CozoDB on RocksDB | nothing to configure | 0: survives the end of the process, not a power cut |
| SurrealDB on SurrealKV | as it comes | 0: survives the end of the process, not a power cut |
| SurrealDB on SurrealKV | `SURREAL_SYNC_DATA=true` in the environment | 500 |

So the durable cases use CozoDB on SQLite and SurrealDB with `SURREAL_SYNC_DATA=true`; the case "not waited for" puts
the others beside Vedette's `durability="relaxed"`. Vedette's commits that wait at the same time share a sync: 3,200
commits from 32 threads took 200.

The queues, counted the same way on the process that writes:

| | as configured here | 200 puts, one by one | 320 puts, 32 at once | 205 taken and acknowledged | 320, 256 in flight |
| --- | --- | ---: | ---: | ---: | ---: |
| Vedette | as it comes | 200 | 10 | 205 | 2 |
| NATS JetStream | `sync_interval: always` (default: every two minutes); acks confirmed | 200 | 320 | 211 | 325 |
| Redis Streams | `appendfsync always` (default: every second) | 200 | 18 | 410 | 4 |
| RabbitMQ | quorum queue on one node, publisher confirms | 201 | 30 | 208 | 29 |
| procrastinate | PostgreSQL as it comes | 200 | 321 | 412 | 635 |
| beanstalkd | `-b … -f0` (default: no file at all) | 200 | 320 | 205 | 320 |

All of them have synced an item before they confirm it (of Redis and beanstalkd the order of the calls was looked at:
write, sync, answer), so all of them count. RabbitMQ syncs acknowledgements too, but AMQP has no answer to
them: a consumer cannot know that one is durable. Redis acknowledges and deletes in one command, procrastinate's
acknowledgement is the end of the job. Live queries keep nothing on disk here: drasi-lib, SurrealDB's `mem://` and
PGlite are asked in memory, and so is Vedette, except where a line says fsync.

## What the peers with live queries cannot do

- **drasi-lib**: queries have no parameters; each is evaluated for itself, so a thousand of them cost a thousand times
  one; `push_change` returns before anything is evaluated.
- **SurrealDB's `LIVE SELECT`** looks at one table, so there is no pattern over an edge; a record that leaves the filter
  is not told, so it gets half the events.
- **PGlite's `live.changes`** runs the whole query again after each change.
"""


def page(run: Run) -> str:
    parts = [_HEAD, *_machine(run), *_table(run), _METHOD, _DURABILITY, *_cases(run)]
    return "\n".join(part.rstrip("\n") if part.endswith("\n") else part for part in parts) + "\n"


def _machine(run: Run) -> Iterator[str]:
    machine = run.machine
    versions = ", ".join(f"{name} {version}" for name, version in machine.versions.items())
    yield ""
    yield (
        f"Measured {machine.date} at `{machine.revision}`: {machine.processor}, {machine.cores} cores, "
        f"{machine.memory_gib} GiB, {machine.system}, {machine.python}; {machine.file_system} with "
        f"{machine.syncs_per_second:,.0f} syncs of 4 KiB a second; {versions}. "
        f"The run took {run.seconds / 60:.0f} minutes; load {machine.load_before:.1f} before it and "
        f"{run.load_after:.1f} after it, of which it is about 1 itself: what is above that is other people's work "
        "on the same cores."
    )
    if run.measured:
        yield from (
            "",
            "The cases were measured apart; each says below when, of which source, under which load.",
        )
        if not run.complete:
            yield "Those of the gateway are not among them: [the gateway](gateway.md) has what was seen by hand."
    elif run.revision_after != machine.revision:
        yield from ("", f"**The source changed during the run, to `{run.revision_after}`.**")
    if run.scale != "full" or not (run.complete or run.measured):
        yield ""
        yield f"**This is a {run.scale}{'' if run.complete else ', partial'} run: not numbers to keep.**"


def _table(run: Run) -> Iterator[str]:
    yield ""
    yield "| | Vedette | goal | | times as good as |"
    yield "| --- | ---: | ---: | --- | --- |"
    for outcome in run.outcomes:
        reached = verdict(outcome)
        mark = "" if reached is None else "met" if reached else "**missed**"
        if outcome.case in run.quick_cases:
            mark = "quick run, smaller: not judged"
        ours = value_words(outcome.metric, outcome.series[0])
        peers = ", ".join(f"{s.contender} {ratio_words(outcome, s)}" for s in outcome.series[1:])
        yield f"| {outcome.metric.name} | {ours} | {goal_words(outcome.metric)} | {mark} | {peers} |"


def _cases(run: Run) -> Iterator[str]:
    yield ""
    yield "## Case by case"
    for title, group in groupby(run.outcomes, lambda outcome: outcome.title):
        yield from _case(title, list(group), run.measured)


def _case(title: str, outcomes: list[Outcome], measured: Mapping[str, str]) -> Iterator[str]:
    first = outcomes[0]
    yield from ("", f"### {title}", "", f"`--only {first.case}`. {first.method}", "")
    if first.case in measured:
        yield from (f"Measured {measured[first.case]}.", "")
    yield f"| | {' | '.join(outcome.metric.name for outcome in outcomes)} | |"
    yield f"| --- | {' | '.join('---:' for _ in outcomes)} | --- |"
    for place, series in enumerate(first.series):
        cells = []
        for outcome in outcomes:
            theirs = outcome.series[place]
            times = f" ({ratio_words(outcome, theirs)})" if place else ""
            cells.append(value_words(outcome.metric, theirs) + times)
        yield f"| {series.contender} | {' | '.join(cells)} | {series.about} |"
    if first.problem:
        yield from ("", f"Problems: {first.problem}")
