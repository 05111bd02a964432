"""A small model of consume mode: what rulings and surface.md say, over plain dicts, evaluated anew at every step.

It knows nothing of heaps, tickets or sequences. Where an order is not ruled (matches of one commit), it has none: it
says which elements may be handed out next, not which one will be.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

__all__ = ["Claim", "Consumer", "Facts", "Letter", "Model", "Pattern", "Pool", "Want"]


class Want(NamedTuple):
    """One match of an element."""

    identity: tuple[str, ...]
    match: dict[str, Any]
    rank: tuple[Any, ...]
    serial: Hashable


Found = dict[str, list[Want]]
Evaluate = Callable[["Model"], Found]


@dataclass(frozen=True, repr=False)
class Pattern:
    """A statement's text up to its options, and what it means."""

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
class Pool:
    """Elements that match one statement of one group."""

    group: Hashable
    name: str | None
    """The group's name; None for all watches without one."""
    pattern: Pattern
    filter: int | None
    """ALTER … filter: j.n % 2 = this."""
    unwanted: set[tuple[str, ...]] | None = None
    arrivals: dict[str, tuple[int, int]] = field(default_factory=dict)
    wants: Found = field(default_factory=dict)


@dataclass(eq=False, repr=False)
class Consumer:
    """A consume watch."""

    number: int
    session: int | None
    """None: a reliable one that nobody has taken up again."""
    pool: Pool
    bound: int
    group_bound: int | None
    timeout: int
    redeliveries: int
    grave: str | None
    reliable: bool
    paused: bool = False
    told: list[str] = field(default_factory=list)
    """Codes of the records that its owner has not read yet."""
    again: list[str] = field(default_factory=list)
    """Deliveries to hand out once more, since it was attached again."""

    def __repr__(self) -> str:
        return f"<consumer {self.number}>"

    @property
    def active(self) -> bool:
        return not self.paused and self.session is not None


@dataclass(eq=False, repr=False)
class Claim:
    """A delivery that has not ended."""

    id: str
    element: str
    consumer: Consumer
    pool: Pool
    deadline: int
    appointed: int
    """Of several leases that end together the one agreed on first ends first."""
    withdrawn: bool = False
    enlisted: bool = False

    def __repr__(self) -> str:
        return f"<{self.id}: {self.element} of {self.consumer}>"


class Facts(NamedTuple):
    """What is remembered of an element in a group."""

    failures: int = 0
    timeouts: int = 0
    until: int = 0
    parked: bool = False


@dataclass(frozen=True)
class Letter:
    """A dead letter, with what was deleted for it."""

    element: str
    watch: int
    reason: str
    attempts: int
    jobs: dict[str, dict[str, Any]]
    links: dict[str, tuple[str, str]]


class Model:
    """The graph and the desk of one database. Time is in whole seconds."""

    def __init__(self) -> None:
        self.now = 0
        self.jobs: dict[str, dict[str, Any]] = {}
        self.channels: dict[str, dict[str, Any]] = {}
        self.links: dict[str, tuple[str, str]] = {}
        self.graves: set[str] = set()
        self.ages: dict[str, int] = {}
        self.consumers: dict[int, Consumer] = {}
        self.pools: dict[Hashable, Pool] = {}
        self.claims: dict[str, Claim] = {}
        self.facts: dict[tuple[str, str | None], Facts] = {}
        self.until: dict[str, int] = {}
        self.parked: set[str] = set()
        self.live: set[str] = set()
        """Elements that somebody waits for or holds."""
        self.held_keys: dict[str, set[tuple[Hashable, Hashable]]] = {}
        self.letters: list[Letter] = []
        self.commits = 0
        self.appointments = 0

    # The graph

    def made(self, id: str) -> None:
        self.ages[id] = len(self.ages)

    def delete(self, element: str) -> tuple[dict[str, dict[str, Any]], dict[str, tuple[str, str]]]:
        """Take the element away, a job with its links; returns what went."""
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

    # Pools

    def found(self, pool: Pool) -> Found:
        matches = pool.pattern.found(self)
        if pool.filter is not None:
            matches = {
                element: [want for want in wants if self._job_of(want)["n"] % 2 == pool.filter]
                for element, wants in matches.items()
            }
        if pool.unwanted is not None:
            pool.unwanted &= {want.identity for wants in matches.values() for want in wants}
            matches = {
                element: [want for want in wants if want.identity not in pool.unwanted]
                for element, wants in matches.items()
            }
        return {element: wants for element, wants in matches.items() if wants}

    def _job_of(self, want: Want) -> dict[str, Any]:
        return self.jobs[want.match["j.id"]]

    def open(self, key: Hashable, pool: Pool) -> Pool:
        """A pool with everything that matches now, the oldest first."""
        if key not in self.pools:
            self.commits += 1
            self.pools[key] = pool
            pool.wants = self.found(pool)
            for element in pool.wants:
                pool.arrivals[element] = (self.commits, self.ages[element])
                self._remember(element)
                self._keep_keys(element)
        return self.pools[key]

    def close_unused(self) -> None:
        used = {id(consumer.pool) for consumer in self.consumers.values()}
        for key, pool in list(self.pools.items()):
            if id(pool) not in used:
                del self.pools[key]
                for claim in self.claims.values():
                    claim.withdrawn = claim.withdrawn or claim.pool is pool
        groups = {pool.group for pool in self.pools.values()}
        for keys in self.held_keys.values():
            keys.intersection_update([each for each in keys if each[0] in groups])
        self._drop_unwanted()

    def committed(self) -> None:
        """The graph is another: matches come and go."""
        self.commits += 1
        before = {id(pool): pool.wants for pool in self.pools.values()}
        for pool in self.pools.values():
            pool.wants = self.found(pool)
        for pool in self.pools.values():
            for element in pool.wants.keys() - before[id(pool)].keys():
                pool.arrivals[element] = (self.commits, 0)
                self._remember(element)
                for claim in self.claims.values():
                    if claim.element == element and claim.pool is pool:
                        claim.withdrawn = False
            for element in before[id(pool)].keys() - pool.wants.keys():
                del pool.arrivals[element]
                self._lost(pool, element)
        for element, name in list(self.facts):
            if not self.exists(element):
                del self.facts[element, name]
        for element in self.live:
            self._keep_keys(element)
        self._drop_unwanted()

    def _lost(self, pool: Pool, element: str) -> None:
        for claim in self.claims.values():
            if claim.element == element and claim.pool is pool and not claim.withdrawn:
                claim.withdrawn = True
                if not claim.enlisted:
                    claim.consumer.told.append("WITHDRAWN")
        if not any(each.name == pool.name and element in each.wants for each in self.pools.values()):
            self.facts.pop((element, pool.name), None)

    def _remember(self, element: str) -> None:
        """An item that nobody waited for: what was stored of it counts."""
        if element in self.live:
            return
        self.live.add(element)
        stored = [facts for (each, _), facts in self.facts.items() if each == element]
        if any(facts.parked for facts in stored):
            self.parked.add(element)
        latest = max((facts.until for facts in stored), default=0)
        if latest > self.now:
            self.until[element] = latest

    def _drop_unwanted(self) -> None:
        wanted = {element for pool in self.pools.values() for element in pool.wants}
        wanted |= {claim.element for claim in self.claims.values()}
        for element in self.live - wanted:
            self.live.discard(element)
            self.until.pop(element, None)
            self.parked.discard(element)
            self.held_keys.pop(element, None)

    def _keep_keys(self, element: str) -> None:
        """An item that cannot be handed out holds its keys, those of now and those from before."""
        if self.available(element) or element in self.parked:
            return
        for pool in self.pools.values():
            if pool.pattern.serialized and element in pool.wants:
                best = min(pool.wants[element], key=lambda want: want.rank)
                self.held_keys.setdefault(element, set()).add((pool.group, best.serial))

    # Handing out

    def available(self, element: str) -> bool:
        claimed = any(claim.element == element for claim in self.claims.values())
        return not claimed and element not in self.until and element not in self.parked

    def held(self, consumer: Consumer) -> list[Claim]:
        return [claim for claim in self.claims.values() if claim.consumer is consumer]

    def share(self, consumer: Consumer, limit: int | None) -> int:
        """surface.md, fairness."""
        members = [each for each in self.consumers.values() if each.pool.group == consumer.pool.group]
        held = {each.number: len(self.held(each)) for each in members}
        mine, total = held[consumer.number], sum(held.values())
        if not consumer.active or mine >= consumer.bound:
            return 0
        rivals = sum(each.active and held[each.number] < each.bound for each in members)
        waiting = sum(map(self.available, consumer.pool.wants))
        share = min(max(1, -(-(waiting + total) // rivals) - mine), consumer.bound - mine)
        if consumer.group_bound is not None:
            share = min(share, consumer.group_bound - total)
        return max(0, share if limit is None else min(share, limit))

    def next_of(self, consumer: Consumer) -> dict[str, list[Want]]:
        """The elements of which one must come next, each with the matches that it may come with."""
        pool = consumer.pool
        busy = {key for keys in self.held_keys.values() for group, key in keys if group == pool.group}
        turns: dict[str, tuple[Any, ...]] = {}
        firsts: dict[str, list[Want]] = {}
        for element, wants in pool.wants.items():
            if not self.available(element):
                continue
            rank = min(want.rank for want in wants)
            best = [want for want in wants if want.rank == rank]
            if pool.pattern.serialized and any(want.serial in busy for want in best):
                continue
            turns[element], firsts[element] = (rank, pool.arrivals[element]), best
        first = min(turns.values(), default=None)
        return {element: firsts[element] for element, turn in turns.items() if turn == first}

    def claim(self, consumer: Consumer, element: str, id: str) -> None:
        self.claims[id] = Claim(id, element, consumer, consumer.pool, 0, 0)
        self.extend(self.claims[id], consumer.timeout)
        self._keep_keys(element)

    def extend(self, claim: Claim, seconds: int) -> None:
        self.appointments += 1
        claim.deadline, claim.appointed = self.now + seconds, self.appointments

    # Taking back

    def end(self, claim: Claim, until: int | None = None) -> None:
        """The claim is over and its element free, or free later."""
        del self.claims[claim.id]
        if until is not None:
            self.until[claim.element] = until
            self._keep_keys(claim.element)
        else:
            self.held_keys.pop(claim.element, None)
        self._drop_unwanted()

    def acknowledged(self, claims: Iterable[Claim]) -> None:
        for claim in claims:
            self.delete(claim.element)
            del self.claims[claim.id]
        self.committed()

    def fail(
        self, claim: Claim, *, timeout: bool = False, retry: bool = True, delay: int | None = None
    ) -> None:
        """NACK, a timeout, or a consumer that was lost."""
        if claim.withdrawn:
            self.end(claim)
            return
        consumer, key = claim.consumer, (claim.element, claim.consumer.pool.name)
        past = self.facts.get(key, Facts())
        facts = Facts(past.failures + (not timeout), past.timeouts + timeout)
        attempts = facts.failures + facts.timeouts
        if retry and attempts <= consumer.redeliveries:
            until = self.now + delay if delay is not None else None
            self.facts[key] = facts._replace(until=until or 0)
            self.end(claim, until)
        elif consumer.grave is not None and consumer.grave not in self.graves:
            consumer.told.append("E8007")
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
        """Time passes: leases and delays end, each at its moment."""
        goal = self.now + seconds
        while True:
            moments = [claim.deadline for claim in self.claims.values()] + list(self.until.values())
            ahead = [moment for moment in moments if moment <= goal]
            if not ahead:
                self.now = goal
                return
            self.now = max(self.now, min(ahead))
            due = [claim for claim in self.claims.values() if claim.deadline <= self.now]
            for claim in sorted(due, key=lambda claim: (claim.deadline, claim.appointed)):
                claim.consumer.told.append("E8003")
                self.fail(claim, timeout=True)
            for element in [element for element, until in self.until.items() if until <= self.now]:
                del self.until[element]
                self.held_keys.pop(element, None)

    def leave(self, consumer: Consumer, *, lost: bool) -> None:
        for claim in self.held(consumer):
            if lost:
                self.fail(claim)
            else:
                self.end(claim)
        del self.consumers[consumer.number]
        self.close_unused()

    def redrive(self, letter: Letter) -> bool:
        """Make it whole again; False when what it joined is gone."""
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
        for element in [element for element in consumer.pool.wants if element in self.parked]:
            self.parked.discard(element)
            for key in [key for key, facts in self.facts.items() if key[0] == element and facts.parked]:
                del self.facts[key]

    def restarted(self, reopened: Callable[[Consumer], None]) -> None:
        """Claims are gone, and all consumers but the reliable ones, which wait to be taken up."""
        self.claims.clear()
        self.until.clear()
        self.parked.clear()
        self.live.clear()
        self.held_keys.clear()
        self.pools.clear()
        kept = [consumer for consumer in self.consumers.values() if consumer.reliable]
        self.consumers = {}
        for consumer in kept:
            consumer.session, consumer.again = None, []
            consumer.told.clear()
            consumer.pool = replace(consumer.pool, arrivals={}, wants={})
            self.consumers[consumer.number] = consumer
            reopened(consumer)
