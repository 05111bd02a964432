"""Reference model of consume mode: plain dicts, recomputed at every step (see `docs/reference/consume.md`).

The model has no heaps, line versions or commit sequences. Where the documentation defines no order (matches of one
commit), neither does the model: it returns the set of elements that may be delivered next.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

__all__ = ["Claim", "Consumer", "Letter", "MatchQueue", "Model", "Pattern", "QueuedMatch", "StoredAttempts"]


class QueuedMatch(NamedTuple):
    """One match of an element."""

    identity: tuple[str, ...]
    match: dict[str, Any]
    rank: tuple[Any, ...]
    serial: Hashable


Found = dict[str, list[QueuedMatch]]
Evaluate = Callable[["Model"], Found]


@dataclass(frozen=True, repr=False)
class Pattern:
    """The text of a statement up to its options, and its meaning."""

    text: str
    returns: str
    options: str
    column: str
    """The column that holds the id of the element that ACK deletes."""
    found: Evaluate
    serialized: bool = False

    def __repr__(self) -> str:
        return f"<{self.text} [{self.options}]>"


@dataclass(eq=False, repr=False)
class MatchQueue:
    """The elements that match one statement of one group."""

    group: Hashable
    name: str | None
    """The group's name; None for all watches without one."""
    pattern: Pattern
    filter: int | None
    """The filter set by ALTER: `j.n % 2` equals this value."""
    excluded: set[tuple[str, ...]] | None = None
    arrivals: dict[str, tuple[int, int]] = field(default_factory=dict)
    queued_matches: Found = field(default_factory=dict)


@dataclass(eq=False, repr=False)
class Consumer:
    """A consume-mode watch."""

    number: int
    session: int | None
    """None for a reliable watch that no session has attached to since the restart."""
    queue: MatchQueue
    max_unacked: int
    group_max_in_flight: int | None
    timeout: int
    redeliveries: int
    dead_letter_target: str | None
    reliable: bool
    paused: bool = False
    error_codes: list[str] = field(default_factory=list)
    """Codes of error records that the owner has not read yet."""
    again: list[str] = field(default_factory=list)
    """Deliveries to send again because the watch was attached again."""

    def __repr__(self) -> str:
        return f"<consumer {self.number}>"

    @property
    def active(self) -> bool:
        return not self.paused and self.session is not None


@dataclass(eq=False, repr=False)
class Claim:
    """An open delivery."""

    id: str
    element: str
    consumer: Consumer
    queue: MatchQueue
    deadline: int
    lease_number: int
    """Tie-breaker: of several leases with one deadline, the oldest expires first."""
    withdrawn: bool = False
    enlisted: bool = False

    def __repr__(self) -> str:
        return f"<{self.id}: {self.element} of {self.consumer}>"


class StoredAttempts(NamedTuple):
    """The stored state of an element in a group."""

    failures: int = 0
    timeouts: int = 0
    until: int = 0
    parked: bool = False


@dataclass(frozen=True)
class Letter:
    """A dead letter and the elements that were deleted with it."""

    element: str
    watch: int
    reason: str
    attempts: int
    jobs: dict[str, dict[str, Any]]
    links: dict[str, tuple[str, str]]


class Model:
    """The graph and the dispatcher of one database. Times are whole seconds."""

    def __init__(self) -> None:
        self.now = 0
        self.jobs: dict[str, dict[str, Any]] = {}
        self.channels: dict[str, dict[str, Any]] = {}
        self.links: dict[str, tuple[str, str]] = {}
        self.dead_letter_targets: set[str] = set()
        self.ages: dict[str, int] = {}
        self.consumers: dict[int, Consumer] = {}
        self.queues: dict[Hashable, MatchQueue] = {}
        self.claims: dict[str, Claim] = {}
        self.facts: dict[tuple[str, str | None], StoredAttempts] = {}
        self.until: dict[str, int] = {}
        self.parked: set[str] = set()
        self.live: set[str] = set()
        """Elements that are in a queue or held by a consumer."""
        self.blocked_keys: dict[str, set[tuple[Hashable, Hashable]]] = {}
        self.letters: list[Letter] = []
        self.commits = 0
        self.lease_count = 0

    # The graph

    def record_creation(self, id: str) -> None:
        self.ages[id] = len(self.ages)

    def delete(self, element: str) -> tuple[dict[str, dict[str, Any]], dict[str, tuple[str, str]]]:
        """Delete the element; a job is deleted with its links. Return the deleted items."""
        jobs, links = {}, {}
        if element in self.jobs:
            jobs[element] = self.jobs.pop(element)
            links = {link: ends for link, ends in self.links.items() if element in ends}
        elif element in self.links:
            links = {element: self.links[element]}
        elif element in self.channels:
            del self.channels[element]
            links = {link: ends for link, ends in self.links.items() if element in ends}
        for link in links:
            del self.links[link]
        return jobs, links

    def exists(self, element: str) -> bool:
        return element in self.jobs or element in self.links

    # Queues

    def found(self, queue: MatchQueue) -> Found:
        matches = queue.pattern.found(self)
        if queue.filter is not None:
            matches = {
                element: [
                    queued for queued in queued_matches if self._job_of(queued)["n"] % 2 == queue.filter
                ]
                for element, queued_matches in matches.items()
            }
        if queue.excluded is not None:
            queue.excluded &= {
                queued.identity for queued_matches in matches.values() for queued in queued_matches
            }
            matches = {
                element: [queued for queued in queued_matches if queued.identity not in queue.excluded]
                for element, queued_matches in matches.items()
            }
        return {element: queued_matches for element, queued_matches in matches.items() if queued_matches}

    def _job_of(self, queued: QueuedMatch) -> dict[str, Any]:
        return self.jobs[queued.match["j.id"]]

    def open(self, key: Hashable, queue: MatchQueue) -> MatchQueue:
        """Return a new queue with all current matches, the oldest first."""
        if key not in self.queues:
            self.commits += 1
            self.queues[key] = queue
            queue.queued_matches = self.found(queue)
            for element in queue.queued_matches:
                queue.arrivals[element] = (self.commits, self.ages[element])
                self._restore_attempts(element)
                self._block_keys(element)
        return self.queues[key]

    def close_unused(self) -> None:
        used = {id(consumer.queue) for consumer in self.consumers.values()}
        for key, queue in list(self.queues.items()):
            if id(queue) not in used:
                del self.queues[key]
                for claim in self.claims.values():
                    claim.withdrawn = claim.withdrawn or claim.queue is queue
        groups = {queue.group for queue in self.queues.values()}
        for keys in self.blocked_keys.values():
            keys.intersection_update([each for each in keys if each[0] in groups])
        self._drop_idle_elements()

    def committed(self) -> None:
        """Update all queues after a change of the graph."""
        self.commits += 1
        before = {id(queue): queue.queued_matches for queue in self.queues.values()}
        for queue in self.queues.values():
            queue.queued_matches = self.found(queue)
        for queue in self.queues.values():
            for element in queue.queued_matches.keys() - before[id(queue)].keys():
                queue.arrivals[element] = (self.commits, 0)
                self._restore_attempts(element)
                for claim in self.claims.values():
                    if claim.element == element and claim.queue is queue:
                        claim.withdrawn = False
            for element in before[id(queue)].keys() - queue.queued_matches.keys():
                del queue.arrivals[element]
                self._withdraw(queue, element)
        for element, name in list(self.facts):
            if not self.exists(element):
                del self.facts[element, name]
        for element in self.live:
            self._block_keys(element)
        self._drop_idle_elements()

    def _withdraw(self, queue: MatchQueue, element: str) -> None:
        for claim in self.claims.values():
            if claim.element == element and claim.queue is queue and not claim.withdrawn:
                claim.withdrawn = True
                if not claim.enlisted:
                    claim.consumer.error_codes.append("WITHDRAWN")
        if not any(
            each.name == queue.name and element in each.queued_matches for each in self.queues.values()
        ):
            self.facts.pop((element, queue.name), None)

    def _restore_attempts(self, element: str) -> None:
        """Restore the stored attempts of an element that was in no queue."""
        if element in self.live:
            return
        self.live.add(element)
        stored = [facts for (each, _), facts in self.facts.items() if each == element]
        if any(facts.parked for facts in stored):
            self.parked.add(element)
        latest = max((facts.until for facts in stored), default=0)
        if latest > self.now:
            self.until[element] = latest

    def _drop_idle_elements(self) -> None:
        in_use = {element for queue in self.queues.values() for element in queue.queued_matches}
        in_use |= {claim.element for claim in self.claims.values()}
        for element in self.live - in_use:
            self.live.discard(element)
            self.until.pop(element, None)
            self.parked.discard(element)
            self.blocked_keys.pop(element, None)

    def _block_keys(self, element: str) -> None:
        """Block the current and the earlier keys of an element that cannot be delivered."""
        if self.available(element) or element in self.parked:
            return
        for queue in self.queues.values():
            if queue.pattern.serialized and element in queue.queued_matches:
                best = min(queue.queued_matches[element], key=lambda queued: queued.rank)
                self.blocked_keys.setdefault(element, set()).add((queue.group, best.serial))

    # Delivering

    def available(self, element: str) -> bool:
        claimed = any(claim.element == element for claim in self.claims.values())
        return not claimed and element not in self.until and element not in self.parked

    def held(self, consumer: Consumer) -> list[Claim]:
        return [claim for claim in self.claims.values() if claim.consumer is consumer]

    def share(self, consumer: Consumer, limit: int | None) -> int:
        """Return the fair share of a consumer (see "Groups" in `docs/reference/consume.md`)."""
        consumers = [each for each in self.consumers.values() if each.queue.group == consumer.queue.group]
        held = {each.number: len(self.held(each)) for each in consumers}
        mine, total = held[consumer.number], sum(held.values())
        if not consumer.active or mine >= consumer.max_unacked:
            return 0
        competitors = sum(each.active and held[each.number] < each.max_unacked for each in consumers)
        waiting = sum(map(self.available, consumer.queue.queued_matches))
        share = min(max(1, -(-(waiting + total) // competitors) - mine), consumer.max_unacked - mine)
        if consumer.group_max_in_flight is not None:
            share = min(share, consumer.group_max_in_flight - total)
        return max(0, share if limit is None else min(share, limit))

    def deliverable_next(self, consumer: Consumer) -> dict[str, list[QueuedMatch]]:
        """Return the elements that may be delivered next, each with the matches that it may be delivered with."""
        queue = consumer.queue
        busy = {key for keys in self.blocked_keys.values() for group, key in keys if group == queue.group}
        order_by_element: dict[str, tuple[Any, ...]] = {}
        best_matches: dict[str, list[QueuedMatch]] = {}
        for element, queued_matches in queue.queued_matches.items():
            if not self.available(element):
                continue
            rank = min(queued.rank for queued in queued_matches)
            best = [queued for queued in queued_matches if queued.rank == rank]
            if queue.pattern.serialized and any(queued.serial in busy for queued in best):
                continue
            order_by_element[element], best_matches[element] = (rank, queue.arrivals[element]), best
        first = min(order_by_element.values(), default=None)
        return {
            element: best_matches[element] for element, order in order_by_element.items() if order == first
        }

    def claim(self, consumer: Consumer, element: str, id: str) -> None:
        self.claims[id] = Claim(id, element, consumer, consumer.queue, 0, 0)
        self.extend(self.claims[id], consumer.timeout)
        self._block_keys(element)

    def extend(self, claim: Claim, seconds: int) -> None:
        self.lease_count += 1
        claim.deadline, claim.lease_number = self.now + seconds, self.lease_count

    # Ending deliveries

    def end(self, claim: Claim, until: int | None = None) -> None:
        """End the delivery. Its element becomes deliverable now, or after a delay."""
        del self.claims[claim.id]
        if until is not None:
            self.until[claim.element] = until
            self._block_keys(claim.element)
        else:
            self.blocked_keys.pop(claim.element, None)
        self._drop_idle_elements()

    def acknowledged(self, claims: Iterable[Claim]) -> None:
        for claim in claims:
            self.delete(claim.element)
            del self.claims[claim.id]
        self.committed()

    def fail(
        self, claim: Claim, *, timeout: bool = False, retry: bool = True, delay: int | None = None
    ) -> None:
        """Fail a delivery: NACK, an expired lease, or a lost consumer."""
        if claim.withdrawn:
            self.end(claim)
            return
        consumer, key = claim.consumer, (claim.element, claim.consumer.queue.name)
        past = self.facts.get(key, StoredAttempts())
        facts = StoredAttempts(past.failures + (not timeout), past.timeouts + timeout)
        attempts = facts.failures + facts.timeouts
        if retry and attempts <= consumer.redeliveries:
            until = self.now + delay if delay is not None else None
            self.facts[key] = facts._replace(until=until or 0)
            self.end(claim, until)
        elif (
            consumer.dead_letter_target is not None
            and consumer.dead_letter_target not in self.dead_letter_targets
        ):
            consumer.error_codes.append("E8007")
            self.facts[key] = facts._replace(parked=True)
            self.parked.add(claim.element)
            self.end(claim)
        else:
            reason = "max_redeliveries_exceeded" if retry else "no_retry"
            jobs, links = self.delete(claim.element)
            self.letters.append(Letter(claim.element, consumer.number, reason, attempts, jobs, links))
            del self.claims[claim.id]
            self.committed()

    def advance(self, seconds: int) -> None:
        """Advance the time. Leases and delays end in the order of their deadlines."""
        goal = self.now + seconds
        while True:
            moments = [claim.deadline for claim in self.claims.values()] + list(self.until.values())
            ahead = [moment for moment in moments if moment <= goal]
            if not ahead:
                self.now = goal
                return
            self.now = max(self.now, min(ahead))
            due = [claim for claim in self.claims.values() if claim.deadline <= self.now]
            for claim in sorted(due, key=lambda claim: (claim.deadline, claim.lease_number)):
                claim.consumer.error_codes.append("E8003")
                self.fail(claim, timeout=True)
            for element in [element for element, until in self.until.items() if until <= self.now]:
                del self.until[element]
                self.blocked_keys.pop(element, None)

    def leave(self, consumer: Consumer, *, lost: bool) -> None:
        for claim in self.held(consumer):
            if lost:
                self.fail(claim)
            else:
                self.end(claim)
        del self.consumers[consumer.number]
        self.close_unused()

    def redrive(self, letter: Letter) -> bool:
        """Restore the deleted elements of a dead letter. Return False if an element that they need no longer exists."""
        links = {
            link: (job, channel)
            for link, (job, channel) in letter.links.items()
            if (job in letter.jobs or job in self.jobs) and channel in self.channels
        }
        if letter.element not in letter.jobs and letter.element not in links:
            return False
        self.jobs |= {id: dict(job) for id, job in letter.jobs.items()}
        self.links |= links
        self.letters.remove(letter)
        self.committed()
        return True

    def unpark(self, consumer: Consumer) -> None:
        for element in [element for element in consumer.queue.queued_matches if element in self.parked]:
            self.parked.discard(element)
            for key in [key for key, facts in self.facts.items() if key[0] == element and facts.parked]:
                del self.facts[key]

    def restarted(self, reopened: Callable[[Consumer], None]) -> None:
        """Restart: all deliveries end, and only reliable consumers remain, detached."""
        self.claims.clear()
        self.until.clear()
        self.parked.clear()
        self.live.clear()
        self.blocked_keys.clear()
        self.queues.clear()
        kept = [consumer for consumer in self.consumers.values() if consumer.reliable]
        self.consumers = {}
        for consumer in kept:
            consumer.session, consumer.again = None, []
            consumer.error_codes.clear()
            consumer.queue = replace(consumer.queue, arrivals={}, queued_matches={})
            self.consumers[consumer.number] = consumer
            reopened(consumer)
