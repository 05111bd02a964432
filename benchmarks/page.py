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

The performance of Vedette on one machine, compared with other systems that do the same work. `make bench` repeats the
measurements and installs the other systems first (`make bench ARGS=--quick` takes a few minutes, `ARGS="--only
watch-filter"` runs one case). The code is in `benchmarks/`. Absolute times are valid for this machine and this time;
ratios carry over better.
"""

_METHOD = """
## How to read it

Every case runs in its own process. All contenders are set up before the first round and then measured in turns; each
round starts with another contender. A number is the median of the rounds, ± half the interquartile range. A ratio is
the median over the rounds of Vedette against the other system in the same round: above 1 Vedette is that many times as
fast (or as small), below 1 the other system is. "≈" marks a ratio of single measurements, or of rounds with a spread
above 20%: it is approximate and should not be quoted. No sample is discarded. Results are checked; a contender with a
different result is not in the table. No figure here fails a build.

The disk of this machine is shared and sometimes drops to a tenth of its speed for some seconds. With a few long rounds
such a stall hits one contender by chance (one such run showed Vedette eight times as fast as SQLite with the same
durability, which later runs did not confirm). The cases that wait for the disk therefore have many short rounds, and
the bare disk is measured in turns with the contenders.

Embedded engines are called from Python, in process, through their own Python packages: the cost of that call is part
of the result. Vedette is the only one of them written in Python. The databases for Node run in a Node process, and
changes and events stay inside it. Queue servers run beside the Python process, on the same two cores.

This machine has two cores and may be shared. Where the line above states a load well over 1, other programs slowed down
all contenders, those with several threads or processes more than the rest, and absolute figures are lower bounds.
"""

_DURABILITY = """
## Durability of a commit in each system

System calls counted (`strace -f -e trace=fsync,fdatasync`) during 500 single inserts:

| | as configured here | syncs seen |
| --- | --- | --- |
| Vedette | `durability="fsync"`, the default | 500 |
| SQLite | `journal_mode=WAL`, `synchronous=FULL` | 503, three of them for a checkpoint |
| CozoDB on SQLite | nothing to configure; four a commit, so a rollback journal | 2,000 |
| CozoDB on RocksDB | nothing to configure | 0: survives the end of the process, not a power failure |
| SurrealDB on SurrealKV | default | 0: survives the end of the process, not a power failure |
| SurrealDB on SurrealKV | `SURREAL_SYNC_DATA=true` in the environment | 500 |

The durable cases therefore use CozoDB on SQLite and SurrealDB with `SURREAL_SYNC_DATA=true`; the case "not waited for"
compares the others with Vedette's `durability="relaxed"`. Concurrent commits of Vedette share a sync: 3,200 commits
from 32 threads needed 200 syncs.

The queues, counted the same way on the process that writes:

| | as configured here | 200 puts, one by one | 320 puts, 32 at once | 205 taken and acknowledged | 320, 256 in flight |
| --- | --- | ---: | ---: | ---: | ---: |
| Vedette | default | 200 | 10 | 205 | 2 |
| NATS JetStream | `sync_interval: always` (default: every two minutes); acks confirmed | 200 | 320 | 211 | 325 |
| Redis Streams | `appendfsync always` (default: every second) | 200 | 18 | 410 | 4 |
| RabbitMQ | quorum queue on one node, publisher confirms | 201 | 30 | 208 | 29 |
| procrastinate | PostgreSQL with default settings | 200 | 321 | 412 | 635 |
| beanstalkd | `-b … -f0` (default: no file at all) | 200 | 320 | 205 | 320 |

All of them sync an item before they confirm it (for Redis and beanstalkd the order of the calls was checked: write,
sync, reply), so all of them are comparable. RabbitMQ syncs acknowledgements too, but AMQP does not confirm them: a
consumer cannot know that an acknowledgement is durable. Redis acknowledges and deletes in one command; the
acknowledgement of procrastinate is the end of the job. Live queries store nothing on disk here: drasi-lib, SurrealDB's
`mem://` and PGlite run in memory, and so does Vedette, except where a row says fsync.

## Limits of the peers with live queries

- **drasi-lib**: queries have no parameters, and each is evaluated separately, so a thousand of them cost a thousand
  times as much as one; `push_change` returns before the queries are evaluated.
- **SurrealDB's `LIVE SELECT`** reads one table, so it has no pattern over an edge; a record that leaves the filter
  sends no event, so it sends half the events.
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
        f"{run.load_after:.1f} after it, the run itself is about 1 of it; the rest is other work "
        "on the same cores."
    )
    if run.measured:
        yield from (
            "",
            "The cases were measured separately; each states below when, at which revision, and under which load.",
        )
        if not run.complete:
            yield "The gateway cases are not included: [the gateway](gateway.md) has figures of single runs."
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
