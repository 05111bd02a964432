"""Consume mode and its model agree for any actions of any number of consumers and any changes of the graph.

After every step, the graph, deliveries, attempts, dead letters and error records equal those of the model, and the
dispatcher passes `validate()`. At every poll, the number of deliveries is the one given by the limits and the fair
share, and each delivery may come next by the model. At the end, all remaining elements can be consumed.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import vedette
from tests.conftest import SOAK
from tests.properties.models.queue import Claim, Consumer, Found, MatchQueue, Model, Pattern, QueuedMatch
from vedette.engine.data_directory import Vedette
from vedette.engine.session.watch_handle import WatchHandle
from vedette.errors import VedetteError
from vedette.testing import ManualClock

SESSIONS = 3
RARELY = st.sampled_from([False, False, True])
"""The first session is that of the system; the others belong to actors."""
ONTOLOGY = """
node Job { n: Int, state: String = "new", rank: Int?, account: String? }
node Channel { open: Bool = true, level: Int = 0 }
node Person { }
node Grave { }
node Note { n: Int }
edge lies_in(job: Job, channel: Channel) { }
"""


# Statements and their meaning


def _jobs(model: Model, rank: Any = lambda job: (), serial: Any = lambda job: None) -> Found:
    return {
        id: [QueuedMatch((id,), {"j.id": id}, rank(job), serial(job))]
        for id, job in model.jobs.items()
        if job["state"] == "new"
    }


def _descending(value: int | None) -> tuple[int, int]:
    return (0, 0) if value is None else (1, -value)


def _in_channels(model: Model, *, by_link: bool) -> Found:
    found: Found = {}
    for link, (job, channel) in model.links.items():
        facts = model.channels[channel]
        if model.jobs[job]["state"] != "new" or not facts["open"]:
            continue
        match = {"j.id": job, "c.id": channel} | ({"l.id": link} if by_link else {})
        queued = QueuedMatch((job, channel, link), match, (facts["level"], channel), channel)
        found.setdefault(link if by_link else job, []).append(queued)
    return found


_NEW = 'j: Job WHERE j.state = "new"'
_LYING = 'j: Job, c: Channel, lies_in(j, c) WHERE j.state = "new" AND c.open = true'
_LINKS = 'lies_in(j, c) AS l WHERE j.state = "new" AND c.open = true'
PATTERNS = (
    Pattern(_NEW, "j.id", "", "j.id", _jobs),
    Pattern(
        _NEW,
        "j.id",
        "ordering: attribute(j.rank DESC, j.n ASC)",
        "j.id",
        lambda model: _jobs(model, lambda job: (_descending(job["rank"]), job["n"])),
    ),
    Pattern(
        _NEW,
        "j.id",
        "serialize_by: j.account",
        "j.id",
        lambda model: _jobs(model, serial=lambda job: job["account"]),
        serialized=True,
    ),
    Pattern(
        _LYING,
        "j.id, c.id",
        "ordering: attribute(c.level ASC, c.id ASC)",
        "j.id",
        lambda model: _in_channels(model, by_link=False),
    ),
    Pattern(
        _LYING,
        "j.id, c.id",
        "ordering: attribute(c.level ASC, c.id ASC), serialize_by: c.id",
        "j.id",
        lambda model: _in_channels(model, by_link=False),
        serialized=True,
    ),
    Pattern(
        _LINKS,
        "l.id, j.id, c.id",
        "ordering: attribute(c.level ASC, c.id ASC)",
        "l.id",
        lambda model: _in_channels(model, by_link=True),
    ),
)
RANKS = st.none() | st.integers(0, 2)
ACCOUNTS = st.sampled_from([None, "a", "b"])
CONSUMERS = st.fixed_dictionaries(
    {
        "pattern": st.sampled_from(PATTERNS),
        "session": st.integers(0, SESSIONS - 1),
        "group": st.sampled_from([None, None, "g", "g", "h"]),
        "buffer": st.sampled_from([1, 2, 5]),
        "in_flight": st.sampled_from([None, None, 2]),
        "timeout": st.sampled_from([10, 30]),
        "redeliveries": st.sampled_from([0, 1, 2, 2]),
        "dead_letters": st.sampled_from([None, "dead_letter_target", "dead_letter_target", "ghost"]),
        "reliable": st.sampled_from([False, False, True]),
        "later": st.sampled_from([False, False, False, True]),
    }
)


@dataclass
class Transaction:
    """The open transaction of a session."""

    serializable: bool
    known: set[str]
    """The state at BEGIN."""
    commits: int
    enlisted: list[Claim] = field(default_factory=list)
    savepoints: dict[str, int] = field(default_factory=dict)
    notes: int = 0
    aborted: bool = False


class ConsumeMachine(RuleBasedStateMachine):
    # Set-up

    @initialize(
        durable=st.booleans(),
        jobs=st.lists(st.tuples(RANKS, ACCOUNTS), min_size=2, max_size=6),
        channels=st.lists(st.integers(0, 2), max_size=2),
        consumers=st.lists(CONSUMERS, min_size=1, max_size=3),
        data=st.data(),
    )
    def begin(
        self,
        durable: bool,
        jobs: list[tuple[int | None, str | None]],
        channels: list[int],
        consumers: list[dict[str, Any]],
        data: st.DataObject,
    ) -> None:
        self._open_first(durable)
        for level in channels:
            self._make_channel(level)
        for rank, account in jobs:
            if len(channels) > 0 and data.draw(st.booleans()):
                self.spawn_in_channel(data)
            else:
                self.spawn(rank, account)
        for spec in consumers:
            self.watch(spec)

    def _open_first(self, durable: bool) -> None:
        self.model = Model()
        self.root = Path(tempfile.mkdtemp(prefix="consume-")) if durable else None
        self.copies = 0
        self.clock = ManualClock()
        self.handles: dict[int, WatchHandle] = {}
        self.names: dict[int, str] = {}
        """Consumer ▸ id of its watch."""
        self.creators: dict[int, str | None] = {}
        """Consumer ▸ actor that it was created for."""
        self.queue_keys: dict[int, Any] = {}
        self.numbers = self.job_numbers = self.channel_numbers = self.notes = 0
        self.ended: list[str] = []
        """Ids of deliveries that have ended."""
        self.db = self._opened()
        self.db.define(ONTOLOGY)
        self.writer = self.db.session()
        self.actors: list[str | None] = [None]
        for _ in range(SESSIONS - 1):
            self.actors.append(self._made("SPAWN p: Person { } RETURNING id"))
        self.dead_letter_target = self._made("SPAWN g: Grave { } RETURNING id")
        self.model.dead_letter_targets.add(self.dead_letter_target)
        self.ghost = self.dead_letter_target
        self._kill_grave()
        self.sessions = [self.db.session(actor) for actor in self.actors]
        self.transactions: list[Transaction | None] = [None] * SESSIONS

    @property
    def place(self) -> str:
        return ":memory:" if self.root is None else str(self.root / f"data-{self.copies}")

    def _opened(self) -> Vedette:
        return vedette.open(self.place, clock=self.clock, environment={})

    def _made(self, text: str, **values: Any) -> str:
        id = str(self.writer.execute(text, values).rows[0][0])
        self.model.record_creation(id)
        return id

    def teardown(self) -> None:
        if not hasattr(self, "db"):
            return
        try:
            self._drain()
        finally:
            self.db.close()
            if self.root is not None:
                shutil.rmtree(self.root)

    @contextmanager
    def fails(self, *codes: str) -> Iterator[None]:
        with pytest.raises(VedetteError) as caught:
            yield
        assert caught.value.code in codes, caught.value

    # The graph

    @rule(rank=RANKS, account=ACCOUNTS)
    def spawn(self, rank: int | None, account: str | None) -> None:
        self.job_numbers += 1
        facts: dict[str, Any] = {"n": self.job_numbers, "rank": rank, "account": account}
        text = "SPAWN j: Job { n = $n, rank = $rank, account = $account } RETURNING id"
        self.model.jobs[self._made(text, **facts)] = {**facts, "state": "new"}
        self.model.committed()

    def _make_channel(self, level: int) -> None:
        id = self._made("SPAWN c: Channel { level = $level } RETURNING id", level=level)
        self.model.channels[id] = {"open": True, "level": level}

    @precondition(lambda self: self.model.channels)
    @rule(data=st.data())
    def spawn_in_channel(self, data: st.DataObject) -> None:
        """Create a job that is linked to several channels, to one of them more than once, in one commit."""
        chosen = data.draw(st.lists(st.sampled_from(sorted(self.model.channels)), min_size=1, max_size=3))
        self.job_numbers += 1
        self.writer.execute("BEGIN")
        job = self._made("SPAWN j: Job { n = $n } RETURNING id", n=self.job_numbers)
        self.model.jobs[job] = {"n": self.job_numbers, "rank": None, "account": None, "state": "new"}
        for channel in chosen:
            self._link(job, channel)
        self.writer.execute("COMMIT")
        self.model.committed()

    def _link(self, job: str, channel: str) -> None:
        link = self._made("LINK lies_in(#$job, #$channel) AS l RETURNING id", job=job, channel=channel)
        self.model.links[link] = (job, channel)

    @precondition(lambda self: self.model.links)
    @rule(data=st.data())
    def move(self, data: st.DataObject) -> None:
        """Move a job between channels in one commit. It keeps matching if both channels are open."""
        link = data.draw(st.sampled_from(sorted(self.model.links)))
        channel = data.draw(st.sampled_from(sorted(self.model.channels)))
        job, _ = self.model.links.pop(link)
        self.writer.execute("BEGIN")
        self.writer.execute("MATCH lies_in(j, c) AS l WHERE l.id = $link UNLINK l", link=link)
        self._link(job, channel)
        self.writer.execute("COMMIT")
        self.model.committed()

    @precondition(lambda self: self.model.channels)
    @rule(data=st.data(), open=st.booleans(), level=st.integers(0, 2))
    def change_channel(self, data: st.DataObject, open: bool, level: int) -> None:
        id = data.draw(st.sampled_from(sorted(self.model.channels)))
        text = "SET #$id { open = $open, level = $level }"
        self.writer.execute(text, id=id, open=open, level=level)
        self.model.channels[id] = {"open": open, "level": level}
        self.model.committed()

    @precondition(lambda self: self.model.jobs)
    @rule(
        data=st.data(),
        change=st.one_of(
            st.tuples(st.just("state"), st.sampled_from(["new", "done"])),
            st.tuples(st.just("rank"), st.none() | st.integers(0, 3)),
            st.tuples(st.just("account"), st.sampled_from([None, "a", "b"])),
        ),
    )
    def change_job(self, data: st.DataObject, change: tuple[str, Any]) -> None:
        id = data.draw(st.sampled_from(sorted(self.model.jobs)))
        name, value = change
        self.writer.execute(f"MATCH j: Job WHERE j.id = $id SET j.{name} = $value", id=id, value=value)
        self.model.jobs[id][name] = value
        self.model.committed()

    @precondition(lambda self: self.model.jobs)
    @rule(data=st.data(), what=st.sampled_from(["element", "element", "dead_letter_target"]))
    def kill(self, data: st.DataObject, what: str) -> None:
        if what == "dead_letter_target":
            self._kill_grave()
            return
        id = data.draw(st.sampled_from(sorted(self.model.jobs.keys() | self.model.links.keys())))
        if id in self.model.jobs:
            self.writer.execute("KILL #$id", id=id)
        else:
            self.writer.execute("MATCH lies_in(j, c) AS l WHERE l.id = $id UNLINK l", id=id)
        self.model.delete(id)
        self.model.committed()

    def _kill_grave(self) -> None:
        """Delete the node that dead letters are linked to; later consumers use another one."""
        self.writer.execute("KILL #$id", id=self.dead_letter_target)
        self.model.dead_letter_targets.discard(self.dead_letter_target)
        self.model.committed()
        self.dead_letter_target = self._made("SPAWN g: Grave { } RETURNING id")
        self.model.dead_letter_targets.add(self.dead_letter_target)
        self.model.committed()

    # Consumers

    @precondition(lambda self: len(self.model.consumers) < 6)
    @rule(spec=CONSUMERS)
    def watch(self, spec: dict[str, Any]) -> None:
        self.numbers += 1
        number, pattern, session = self.numbers, spec["pattern"], spec["session"]
        if self.transactions[session] is not None:
            self._roll_back(session)
        later, reliable = spec["later"] and not spec["reliable"], spec["reliable"]
        parts = ["mode: consume", pattern.options]
        parts += [f'group: "{spec["group"]}"'] if spec["group"] else []
        parts += [f"buffer: {spec['buffer']}", f"ack_timeout: {spec['timeout']}s"]
        parts += [f"max_redeliveries: {spec['redeliveries']}"]
        parts += [f"max_in_flight: {spec['in_flight']}"] if spec["in_flight"] else []
        parts += ["dead_letter: #$dead_letter_target"] if spec["dead_letters"] else []
        parts += ["delivery: reliable"] if reliable else []
        parts += ["initial: none"] if later else []
        text = f"WATCH {pattern.text} [{', '.join(filter(None, parts))}] RETURN {pattern.returns}"
        dead_letter_target = {"dead_letter_target": self.dead_letter_target, "ghost": self.ghost}.get(
            spec["dead_letters"]
        )
        values = {"dead_letter_target": dead_letter_target} if dead_letter_target else {}
        handle = self.sessions[session].watch(text, values)
        self.handles[number], self.names[number] = handle, handle.id
        self.creators[number] = self.actors[session]
        group = spec["group"] or number
        shared = number if later or not spec["group"] else None
        self.queue_keys[number] = (group, text, dead_letter_target, self.actors[session], shared)
        queue = MatchQueue(group, spec["group"], pattern, None)
        if later:
            queue.excluded = {
                queued.identity
                for queued_matches in pattern.found(self.model).values()
                for queued in queued_matches
            }
        self.model.consumers[number] = Consumer(
            number,
            session,
            self.model.open(self.queue_keys[number], queue),
            spec["buffer"],
            spec["in_flight"],
            spec["timeout"],
            spec["redeliveries"],
            dead_letter_target,
            reliable,
        )
        assert [event.type for event in handle.poll(0 if later else 1)] == ([] if later else ["initial"])
        note(f"consumer {number}: {text}")

    def _reopened(self, consumer: Consumer) -> None:
        consumer.queue = self.model.open(self.queue_keys[consumer.number], consumer.queue)

    def _consumer(self, data: st.DataObject) -> Consumer:
        attended = [each for each in self.model.consumers.values() if each.session is not None]
        return self._chosen(data, attended)

    def _chosen(self, data: st.DataObject, consumers: list[Consumer]) -> Consumer:
        return self.model.consumers[data.draw(st.sampled_from([each.number for each in consumers]))]

    _attended = precondition(lambda self: any(c.session is not None for c in self.model.consumers.values()))

    def _idle(self, data: st.DataObject) -> Consumer:
        """Return mostly a consumer that can receive a delivery."""
        attended = [each for each in self.model.consumers.values() if each.session is not None]
        ready = [
            each for each in attended if self.model.share(each, None) and self.model.deliverable_next(each)
        ]
        return self._chosen(data, ready or attended)

    @_attended
    @rule(data=st.data())
    def poll(self, data: st.DataObject) -> None:
        self._poll(self._consumer(data), None)

    @_attended
    @rule(data=st.data())
    def poll_everything(self, data: st.DataObject) -> None:
        self._poll(self._idle(data), None)

    @_attended
    @rule(data=st.data(), limit=st.integers(1, 3))
    def poll_some(self, data: st.DataObject, limit: int) -> None:
        self._poll(self._idle(data), limit)

    def _poll(self, consumer: Consumer, limit: int | None) -> int:
        events = self.handles[consumer.number].poll(limit)
        note(f"consumer {consumer.number} got {[(e.delivery_id, dict(e.match or {})) for e in events]}")
        taken = len(events)
        if not consumer.paused:
            again = [id for id in consumer.again if id in self.model.claims]
            consumer.again = [] if limit is None else again[limit:]
            for id in again if limit is None else again[:limit]:
                assert events.pop(0).delivery_id == id
                self.model.extend(self.model.claims[id], consumer.timeout)
                limit = None if limit is None else limit - 1
        share = self.model.share(consumer, limit)
        for number, event in enumerate(events):
            assert number < share, "more than a fair part"
            self._take(consumer, event)
        if len(events) < share:
            left = self.model.deliverable_next(consumer)
            assert not left, f"{sorted(left)} could have been delivered"
        return taken

    def _take(self, consumer: Consumer, event: Any) -> None:
        assert event.type == "consumed"
        element = event.match[consumer.queue.pattern.column]
        best_matches = self.model.deliverable_next(consumer)
        assert element in best_matches, f"{element} came before {sorted(best_matches)}"
        assert event.match in [queued.match for queued in best_matches[element]]
        assert event.delivery_id not in self.ended
        past = self.model.facts.get((element, consumer.queue.name))
        assert event.attributes["attempt"] == 1 + (past.failures + past.timeouts if past else 0)
        self.model.claim(consumer, element, event.delivery_id)

    @_attended
    @rule(data=st.data(), operation=st.sampled_from(["pause", "resume", "resume", "buffer", "filter"]))
    def manage(self, data: st.DataObject, operation: str) -> None:
        consumer = self._consumer(data)
        if operation in ("pause", "resume"):
            getattr(self.handles[consumer.number], operation)()
            consumer.paused = operation == "pause"
        elif operation == "buffer" and self._usable(consumer):
            consumer.max_unacked = data.draw(st.integers(1, 4))
            self.handles[consumer.number].alter(f"[buffer: {consumer.max_unacked}]")
        elif self._usable(consumer):
            self._refilter(consumer, data.draw(st.integers(0, 1)))

    def _refilter(self, consumer: Consumer, remainder: int) -> None:
        """Change the filter, which moves the consumer to another queue. It keeps its open deliveries."""
        self.handles[consumer.number].alter(f"[filter: j.n % 2 = {remainder}]")
        former = consumer.queue
        fresh = MatchQueue(former.group, former.name, former.pattern, remainder)
        fresh.excluded = None if former.excluded is None else set(former.excluded)
        self.queue_keys[consumer.number] = (consumer.number, "altered", self.model.commits)
        consumer.queue = self.model.open(self.queue_keys[consumer.number], fresh)
        for claim in self.model.held(consumer):
            if claim.element in fresh.queued_matches:
                claim.queue, claim.withdrawn = fresh, False
        matching = [claim for claim in self.model.held(consumer) if not claim.withdrawn]
        self.model.close_unused()
        consumer.error_codes += ["WITHDRAWN" for claim in matching if claim.withdrawn and not claim.enlisted]

    def _usable(self, consumer: Consumer) -> bool:
        """True if the session of the consumer accepts statements."""
        assert consumer.session is not None
        transaction = self.transactions[consumer.session]
        return transaction is None or not transaction.aborted

    def _left(self, consumer: Consumer, *, lost: bool) -> None:
        del self.handles[consumer.number]
        self._end(*self.model.held(consumer))
        self.model.leave(consumer, lost=lost)

    def _end(self, *claims: Claim) -> None:
        self.ended += [claim.id for claim in claims]

    @_attended
    @rule(data=st.data(), how=st.sampled_from(["cancel", "closed", "lost", "lost"]), rarely=RARELY)
    def leave(self, data: st.DataObject, how: str, rarely: bool) -> None:
        consumer = self._consumer(data)
        assert consumer.session is not None
        if not rarely:
            return
        if how == "cancel":
            self.handles[consumer.number].cancel()
            self._left(consumer, lost=False)
        else:
            self._disconnect(consumer.session, lost=how == "lost")

    def _disconnect(self, session: int, *, lost: bool) -> None:
        self.sessions[session].close(lost=lost)
        self._rolled_back(session)
        for consumer in [each for each in self.model.consumers.values() if each.session == session]:
            if consumer.reliable:
                consumer.session = None
                del self.handles[consumer.number]
            else:
                self._left(consumer, lost=lost)
        self.sessions[session] = self.db.session(self.actors[session])

    @precondition(lambda self: any(c.session is None for c in self.model.consumers.values()))
    @rule(data=st.data(), session=st.integers(0, SESSIONS - 1))
    def attach(self, data: st.DataObject, session: int) -> None:
        away = [consumer for consumer in self.model.consumers.values() if consumer.session is None]
        consumer = self._chosen(data, away)
        if self.actors[session] not in (None, self.creators[consumer.number]):
            with self.fails("E8010"):
                self.sessions[session].attach(self.names[consumer.number])
            return
        self.handles[consumer.number] = self.sessions[session].attach(self.names[consumer.number])
        consumer.session = session
        held = self.model.held(consumer)
        consumer.again = [claim.id for claim in held if not claim.enlisted]

    # Deliveries

    _holding = precondition(lambda self: self.model.claims)

    def _claim(self, data: st.DataObject) -> tuple[Claim, int]:
        """Return a delivery and a session, mostly the session that holds it."""
        claim = self.model.claims[data.draw(st.sampled_from(list(self.model.claims)))]
        own = claim.consumer.session if claim.consumer.session is not None else 0
        return claim, data.draw(st.sampled_from([own] * 6 + list(range(SESSIONS))))

    def _may_end(self, claim: Claim, session: int) -> bool:
        return self.actors[session] is None or claim.consumer.session == session

    def _refused(self, session: int, text: str, id: str) -> None:
        """Run a statement about a delivery that has ended or belongs to another session."""
        transaction = self.transactions[session]
        if transaction is not None and transaction.aborted:
            return
        with self.fails("E8004"):
            self.sessions[session].execute(text, id=id)
        if transaction is not None:
            transaction.aborted = True

    @_holding
    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        self._ack(*self._claim(data))

    def _ack(self, claim: Claim, session: int) -> None:
        transaction = self.transactions[session]
        if not self._may_end(claim, session) or claim.enlisted:
            self._refused(session, "ACK $id", claim.id)
            return
        if transaction is None:
            result = self.sessions[session].execute("ACK $id", id=claim.id)
            assert result.deleted + result.unlinked >= self.model.exists(claim.element)
            self._end(claim)
            self.model.acknowledged([claim])
        elif not transaction.aborted:
            self._ack_within(session, transaction, claim)

    def _ack_within(self, session: int, transaction: Transaction, claim: Claim) -> None:
        unseen = claim.element not in transaction.known
        if transaction.serializable and unseen and self.model.exists(claim.element):
            with self.fails("E5002"):
                self.sessions[session].execute("ACK $id", id=claim.id)
            transaction.aborted = True
            return
        self.sessions[session].execute("SPAWN n: Note { n = 1 }")
        self.sessions[session].execute("ACK $id", id=claim.id)
        transaction.notes += 1
        claim.enlisted = True
        transaction.enlisted.append(claim)

    @precondition(lambda self: self.ended)
    @rule(
        data=st.data(),
        session=st.integers(0, SESSIONS - 1),
        statement=st.sampled_from(["ACK $id", "NACK $id", "NACK $id [no_retry]", "EXTEND $id", "ACK #$id"]),
    )
    def too_late(self, data: st.DataObject, session: int, statement: str) -> None:
        """ACK and NACK of an ended delivery fail: after an ACK, after the timeout, after a restart."""
        self._refused(session, statement, data.draw(st.sampled_from(self.ended)))

    @_holding
    @rule(data=st.data(), how=st.sampled_from(["", "", ' [cause: "it rained"]', " [no_retry]"]))
    def nack(self, data: st.DataObject, how: str) -> None:
        self._nack(data, how)

    @_holding
    @rule(data=st.data(), how=st.sampled_from([" [delay: 7s]", " [delay: 45s]"]))
    def nack_for_later(self, data: st.DataObject, how: str) -> None:
        self._nack(data, how)

    @_holding
    @rule(data=st.data())
    def nack_again(self, data: st.DataObject) -> None:
        self._nack(data, "")

    def _nack(self, data: st.DataObject, how: str) -> None:
        claim, session = self._claim(data)
        if not self._may_end(claim, session) or claim.enlisted:
            self._refused(session, f"NACK $id{how}", claim.id)
            return
        transaction = self.transactions[session]
        if transaction is not None and transaction.aborted:
            return
        self.sessions[session].execute(f"NACK $id{how}", id=claim.id)
        self._end(claim)
        delay = 7 if "7s" in how else 45 if "45s" in how else None
        self.model.fail(claim, retry="no_retry" not in how, delay=delay)

    @_holding
    @rule(data=st.data(), by=st.sampled_from([None, 5, 60]))
    def extend(self, data: st.DataObject, by: int | None) -> None:
        claim, session = self._claim(data)
        text = "EXTEND $id" if by is None else f"EXTEND $id [by: {by}s]"
        if not self._may_end(claim, session) or claim.enlisted:
            self._refused(session, text, claim.id)
            return
        transaction = self.transactions[session]
        if transaction is None or not transaction.aborted:
            self.sessions[session].execute(text, id=claim.id)
            self.model.extend(claim, by or claim.consumer.timeout)

    @_holding
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        claim, session = self._claim(data)
        if self._may_end(claim, session) and not claim.enlisted:
            self.sessions[session].release(claim.id)
            self._end(claim)
            self.model.end(claim)

    # Transactions

    @_holding
    @rule(data=st.data(), serializable=st.booleans())
    def begin_transaction(self, data: st.DataObject, serializable: bool) -> None:
        """Begin a transaction that acknowledges a delivery."""
        claim, session = self._claim(data)
        if self.transactions[session] is None:
            self.sessions[session].execute("BEGIN SERIALIZABLE" if serializable else "BEGIN")
            known = self.model.jobs.keys() | self.model.links.keys()
            self.transactions[session] = Transaction(serializable, known, self.model.commits)
        self._ack(claim, session)

    def _open_transaction(self, session: int) -> Transaction | None:
        transaction = self.transactions[session]
        return transaction if transaction is not None and not transaction.aborted else None

    _transacting = precondition(lambda self: any(self.transactions))

    def _transacting_session(self, data: st.DataObject) -> int:
        opened = [number for number, each in enumerate(self.transactions) if each is not None]
        return data.draw(st.sampled_from(opened))

    @_transacting
    @rule(data=st.data(), name=st.sampled_from("xy"), back=st.booleans())
    def savepoint(self, data: st.DataObject, name: str, back: bool) -> None:
        session = self._transacting_session(data)
        transaction = self._open_transaction(session)
        if transaction is None:
            return
        if not back:
            self.sessions[session].execute(f"SAVEPOINT {name}")
            transaction.savepoints.pop(name, None)
            transaction.savepoints[name] = len(transaction.enlisted)
        elif name in transaction.savepoints:
            self.sessions[session].execute(f"ROLLBACK TO {name}")
            kept = transaction.savepoints[name]
            for claim in transaction.enlisted[kept:]:
                claim.enlisted = False
            del transaction.enlisted[kept:]
            transaction.notes = kept
            later = list(transaction.savepoints)[list(transaction.savepoints).index(name) + 1 :]
            for each in later:
                del transaction.savepoints[each]

    def _rolled_back(self, session: int) -> None:
        transaction = self.transactions[session]
        for claim in transaction.enlisted if transaction is not None else ():
            claim.enlisted = False
        self.transactions[session] = None

    @_transacting
    @rule(data=st.data())
    def rollback(self, data: st.DataObject) -> None:
        self._roll_back(self._transacting_session(data))

    def _roll_back(self, session: int) -> None:
        self.sessions[session].execute("ROLLBACK")
        self._rolled_back(session)

    @_transacting
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        session = self._transacting_session(data)
        transaction = self.transactions[session]
        assert transaction is not None
        over = any(claim.id not in self.model.claims for claim in transaction.enlisted)
        code: str | None = None
        try:
            self.sessions[session].execute("COMMIT")
        except VedetteError as error:
            note(f"COMMIT: {error}")
            code = error.code
        if transaction.aborted or over:
            assert code == ("E5005" if transaction.aborted else "E8004")
        elif code is not None:
            assert code == "E5002"
            assert transaction.commits != self.model.commits, "no other session wrote in the meantime"
        if code is not None:
            self._rolled_back(session)
            return
        self.transactions[session] = None
        self.notes += transaction.notes
        self._end(*transaction.enlisted)
        if transaction.enlisted or transaction.notes:
            self.model.acknowledged(transaction.enlisted)

    # Dead letters

    @precondition(lambda self: self.model.letters)
    @rule(data=st.data())
    def redrive(self, data: st.DataObject) -> None:
        letter = self.model.letters[data.draw(st.integers(0, len(self.model.letters) - 1))]
        letters = self.db.default.watching.consuming.dead_letters.letters.values()
        ids = [each.id for each in letters if each.element == letter.element]
        assert len(ids) == 1, "a dead letter exactly once"
        text = "REDRIVE #$id"
        if self.model.redrive(letter):
            self.writer.execute(text, id=ids[0])
        else:
            with self.fails("E3601"):
                self.writer.execute(text, id=ids[0])

    @_attended
    @rule(data=st.data())
    def redrive_watch(self, data: st.DataObject) -> None:
        consumer = self._consumer(data)
        letters = [letter for letter in self.model.letters if letter.watch == consumer.number]
        sent = [self.model.redrive(letter) for letter in letters]
        self.model.unpark(consumer)
        text, id = "REDRIVE WATCH #$id", self.names[consumer.number]
        if letters and not any(sent):
            with self.fails("E3601"):
                self.writer.execute(text, id=id)
        else:
            assert len(self.writer.execute(text, id=id).warnings) == sent.count(False)

    # Time and restarts

    @rule(seconds=st.sampled_from([1, 3, 8, 10, 31, 200]))
    def wait(self, seconds: int) -> None:
        before = set(self.model.claims)
        self.clock.advance(seconds)
        self.model.advance(seconds)
        self.ended += before - set(self.model.claims)

    @precondition(lambda self: self.root is not None)
    @rule(crash=st.booleans(), rarely=RARELY)
    def restart(self, crash: bool, rarely: bool) -> None:
        """Close and reopen the database, or open a copy of its files as after a crash."""
        if not rarely:
            return
        former = self.place
        if crash:
            self.copies += 1
            shutil.copytree(former, self.place)
        self.db.close()
        self.clock = ManualClock(self.clock.now())
        self._end(*self.model.claims.values())
        self.db = self._opened()
        self.writer = self.db.session()
        self.sessions = [self.db.session(actor) for actor in self.actors]
        self.transactions = [None] * SESSIONS
        self.handles.clear()
        self.model.restarted(self._reopened)

    # Invariants

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "db"):
            return
        model, consuming = self.model, self.db.default.watching.consuming
        jobs = {row[0] for row in self.writer.execute("MATCH j: Job RETURN j.id").rows}
        assert jobs == model.jobs.keys()
        links = {row[0] for row in self.writer.execute("MATCH lies_in(j, c) AS l RETURN l.id").rows}
        assert links == model.links.keys()
        assert len(self.writer.execute("MATCH n: Note RETURN n").rows) == self.notes
        consuming.validate()
        held = {
            id: delivery.queued_element.element for id, delivery in consuming.dispatcher.deliveries.items()
        }
        assert held == {claim.id: claim.element for claim in model.claims.values()}
        assert len(set(held.values())) == len(held), "two holders"
        facts = {
            (element, group): (each.failures, each.timeouts, each.parked)
            for element, groups in consuming.dispatcher.attempts.items()
            for group, each in groups.items()
        }
        expected = {key: (each.failures, each.timeouts, each.parked) for key, each in model.facts.items()}
        assert facts == expected
        self._check_letters()
        for number, handle in self.handles.items():
            consumer = model.consumers[number]
            error_codes = [record.code for record in handle.errors()]
            assert Counter(error_codes) == Counter(consumer.error_codes), f"consumer {number}"
            consumer.error_codes.clear()

    def _check_letters(self) -> None:
        letters = self.db.default.watching.consuming.dead_letters.letters.values()
        found = Counter((each.element, each.reason, each.attempts, each.watch) for each in letters)
        expected = [(each.element, each.reason, each.attempts) for each in self.model.letters]
        names = [self.names[each.watch] for each in self.model.letters]
        assert found == Counter((*facts, name) for facts, name in zip(expected, names, strict=True))
        rows = self.writer.execute("MATCH d: _DeadLetter RETURN d.failure_reason, d.delivery_attempts").rows
        assert Counter(rows) == Counter(facts[1:] for facts in expected)

    def _drain(self) -> None:
        """A new consumer receives all remaining elements except the parked ones."""
        for session in range(SESSIONS):
            self._disconnect(session, lost=False)
        for consumer in [each for each in self.model.consumers.values() if each.session is None]:
            self.names.setdefault(consumer.number, "")
            self.writer.execute("CANCEL WATCH #$id", id=self.names[consumer.number])
            self._end(*self.model.held(consumer))
            self.model.leave(consumer, lost=False)
        self.wait(200)
        self.agrees()
        spec = {
            "pattern": PATTERNS[0],
            "session": 0,
            "group": None,
            "buffer": 5,
            "in_flight": None,
            "timeout": 30,
            "redeliveries": 1,
            "dead_letters": None,
            "reliable": False,
            "later": False,
        }
        self.watch(spec)
        consumer = self.model.consumers[self.numbers]
        while self._poll(consumer, None):
            claims = self.model.held(consumer)
            self.sessions[0].ack([claim.id for claim in claims])
            self._end(*claims)
            for claim in claims:
                self.model.acknowledged([claim])
            self.agrees()
        left = {id for id, job in self.model.jobs.items() if job["state"] == "new"}
        assert left == self.model.parked & left, "something can never be had again"


TestConsume = ConsumeMachine.TestCase
TestConsume.settings = settings(
    max_examples=5_000 if SOAK else 180,
    stateful_step_count=80 if SOAK else 50,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
    deadline=None,
    print_blob=True,
)
