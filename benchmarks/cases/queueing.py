"""Durable work queues: put, take and acknowledge, latency of an idle queue, and a long backlog."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import replace
from itertools import count as counting
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import servers
from benchmarks.case import Case, Contender, Measure, Metric, Setting
from benchmarks.engines.seam import check_same
from benchmarks.queues.beanstalk import BeanstalkQueue
from benchmarks.queues.nats import NatsQueue
from benchmarks.queues.procrastinate import ProcrastinateQueue
from benchmarks.queues.rabbit import RabbitQueue
from benchmarks.queues.redis import RedisQueue
from benchmarks.queues.seam import Queue
from benchmarks.queues.vedette import VedetteQueue
from benchmarks.rounds import percentile, rate, seconds
from benchmarks.scale import Scale

__all__ = ["CASES"]

Start = Callable[[Setting], AbstractContextManager[Measure]]
MeasureQueue = Callable[[Queue, Scale], tuple[float, ...]]
_IN_FLIGHT = 256


def _with(
    server: Callable[[Path], AbstractContextManager[Any]],
    make: Callable[[Any], Queue],
    measure: MeasureQueue,
    share: int = 1,
) -> Start:
    """A slow queue gets one in `share` of the items."""

    @contextmanager
    def start(setting: Setting) -> Iterator[Measure]:
        scale = setting.scale
        scale = replace(
            scale, messages=scale.messages // share, shared_messages=scale.shared_messages // share
        )
        with server(setting.folder) as place, closing(make(place)) as queue:
            yield lambda: measure(queue, scale)

    return start


def _put(queue: Queue, scale: Scale) -> tuple[float, float]:
    """The items are taken again afterwards, so that every round starts equal."""
    one, many, producers = scale.messages, scale.shared_messages, scale.writers
    many = many // producers * producers
    alone = rate(one, lambda: queue.put(one))
    together = rate(many, lambda: queue.put_together(many, producers))
    check_same(queue.take_together(one + many, _IN_FLIGHT), one + many)
    return alone, together


def _take(queue: Queue, scale: Scale) -> tuple[float, float]:
    one, many, producers = scale.messages, scale.shared_messages, scale.writers
    one, many = max(1, one // producers) * producers, many // producers * producers
    queue.put_together(many, producers)
    together = rate(many, lambda: check_same(queue.take_together(many, _IN_FLIGHT), many))
    queue.put_together(one, producers)
    return rate(one, lambda: check_same(queue.take(one), one)), together


def _delay(queue: Queue, scale: Scale) -> tuple[float, float]:
    delays = queue.delays(scale.messages)
    return median(delays) * 1000, percentile(delays, 0.99) * 1000


def _contenders(measure: MeasureQueue) -> tuple[Contender, ...]:
    return (
        Contender(
            name="Vedette",
            start=_with(nullcontext, VedetteQueue, measure),
            about="in process; a sync a put and an ACK, shared by those that wait at the same time",
        ),
        Contender(
            name="NATS JetStream",
            start=_with(servers.nats, NatsQueue, measure),
            about="`sync_interval: always`: a sync a put and an ack, never shared; acks confirmed (`ack_sync`)",
        ),
        Contender(
            name="Redis Streams",
            start=_with(servers.redis, RedisQueue, measure),
            about="`appendfsync always`: a sync before each answer, shared by clients that wait; taking costs one too",
        ),
        Contender(
            name="RabbitMQ",
            start=_with(servers.rabbitmq, RabbitQueue, measure),
            about="quorum queue on one node: a sync a put and an ack, shared; AMQP does not confirm an ack",
        ),
        Contender(
            name="procrastinate",
            start=_with(servers.postgres, ProcrastinateQueue, measure, share=4),
            about="PostgreSQL as it comes: a sync a put, two to take and end a job; its worker runs an empty task",
        ),
        Contender(
            name="beanstalkd",
            start=_with(servers.beanstalkd, BeanstalkQueue, measure),
            about="`-f0`: a sync a put and a delete, never shared",
        ),
    )


# A long backlog


_PORTION = 3 * _IN_FLIGHT
_PORTIONS = 8


def _by_priority(waiting: Callable[[Setting], int]) -> Start:
    """Items are taken in portions, and each portion is replaced by new items, so that the backlog keeps its length."""

    @contextmanager
    def start(setting: Setting) -> Iterator[Measure]:
        line = waiting(setting)
        ordering = "attribute(j.priority DESC, j.place ASC)"
        with closing(VedetteQueue(setting.folder, in_flight=_IN_FLIGHT, ordering=ordering)) as queue:
            queue.put_ranked(0, line)
            firsts = counting(line, _PORTION)

            def take() -> None:
                check_same(queue.take_together(_PORTION, _IN_FLIGHT), _PORTION)

            def measure() -> tuple[float]:
                taking = 0.0
                for _ in range(_PORTIONS):
                    taking += seconds(take)
                    queue.put_ranked(next(firsts), _PORTION)
                return (_PORTIONS * _PORTION / taking,)

            yield measure

    return start


CASES = (
    Case(
        name="queue-put",
        title="Putting durable items into a queue",
        metrics=(
            Metric(
                name="durable items put, 1 producer", unit="/s", more_is_better=True, times=1, against="all"
            ),
            Metric(
                name="durable items put, 32 at once", unit="/s", more_is_better=True, times=1, against="all"
            ),
        ),
        rounds=lambda scale: scale.queue_rounds,
        method=(
            "Items of 128 bytes; each is confirmed as durable before its producer gives the next. One producer, then "
            "32 tasks of one event loop (beanstalkd: 32 threads). Servers run beside the Python process, on the same "
            "two cores; Vedette runs inside it."
        ),
        contenders=_contenders(_put),
    ),
    Case(
        name="queue-take",
        title="Taking items and acknowledging them",
        metrics=(
            Metric(name="items taken and acknowledged, one at a time", unit="/s", more_is_better=True),
            Metric(
                name="items taken and acknowledged, 256 in flight",
                unit="/s",
                more_is_better=True,
                goal=20_000,
            ),
        ),
        rounds=lambda scale: scale.queue_rounds,
        method=(
            "Existing items of 128 bytes; one consumer. One at a time: taken, acknowledged, the "
            "acknowledgement durable (where the protocol says so), then the next. 256 in flight: up to so many are "
            "taken before the first is acknowledged. Redis acknowledges them in one command, Vedette in one call that "
            "makes a transaction each, JetStream and RabbitMQ one by one without waiting in between; beanstalkd's "
            "client waits for every answer, on eight connections. procrastinate gets a quarter of the items, and "
            "the start and end of its worker count."
        ),
        contenders=_contenders(_take),
    ),
    Case(
        name="queue-delay",
        title="From an idle queue to the consumer",
        metrics=(
            Metric(name="item put to delivered, idle, median", unit="ms"),
            Metric(name="item put to delivered, idle, 99 of 100", unit="ms", goal=2),
        ),
        rounds=lambda scale: scale.rounds,
        method=(
            "A consumer waits; every 10 ms an item is put. From giving the item to having it, including the sync. "
            "Producer and consumer are in one Python process: two threads (Vedette, beanstalkd) or two tasks."
        ),
        contenders=_contenders(_delay),
    ),
    Case(
        name="queue-backlog",
        title="1,000,000 items waiting under a priority with two keys",
        metrics=(
            Metric(
                name="items taken, 1,000,000 waiting",
                unit="/s",
                more_is_better=True,
                times=0.8,
                against="1,000 waiting",
            ),
        ),
        rounds=lambda scale: scale.rounds,
        method=(
            "`ordering: attribute(j.priority DESC, j.place ASC)`, taken and acknowledged durably, 256 in flight, in "
            "portions of 768 with as many put in between, which is not counted: a line keeps its length. Of "
            "the peers only beanstalkd and procrastinate have a priority, of one number; Redis Streams, JetStream and "
            "RabbitMQ's quorum queues of this version have none."
        ),
        contenders=(
            Contender(name="Vedette", start=_by_priority(lambda setting: setting.scale.backlog)),
            Contender(
                name="1,000 waiting",
                start=_by_priority(lambda _: 1_000),
                about="Vedette with a short line",
            ),
        ),
    ),
)
