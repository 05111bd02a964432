"""How deliveries end: ACK, NACK, EXTEND, timeouts, and what is stored of attempts.

    attempt.<element>            {"failures", "timeouts", "until_ms", "parked"}    without a group
    attempt.<element>.<group>    the same, in a group; an empty value forgets

A failed attempt is durable before its element can be handed out again: it stands in line from the commit on that stores
it. Claims are not stored: they end with the process, and count no attempt.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from vedette.clock import Timer
from vedette.element import Element
from vedette.engine.commit.lock import LockScope
from vedette.engine.context.result import Result
from vedette.engine.statements import execution
from vedette.errors import StoreError, TransactionError, VedetteError, WatchError
from vedette.graph.actions import delete_element
from vedette.graph.transaction import Transaction
from vedette.queue.entry import Attempts, Delivery, DeliveryEvent, DeliveryState
from vedette.queue.letter import REASON_MAX_REDELIVERIES, REASON_NO_RETRY
from vedette.values import duration_to_text, timestamp_to_ms
from vedette.watch.watch import Watch

if TYPE_CHECKING:
    from vedette.engine.queue_service.service import QueueService
    from vedette.engine.session.session import Session

__all__ = ["Note", "Settlement", "dead_letter_failed", "invalid_delivery_id"]

Note = tuple[str, str]
_ATTEMPT = "attempt."
_ACKS_PER_LOCK = 32
"""So many are acknowledged before somebody else has a turn."""
_DEFAULT_DESTINATION = "the dead letters"
"""How a watch without a destination calls it."""
log = logging.getLogger(__name__)


class Settlement:
    """Ends of deliveries. Methods that take a session wait for the turn; the others are called in it."""

    def __init__(self, consuming: QueueService) -> None:
        self._consuming = consuming
        self._armed: tuple[float, Timer] | None = None

    # --- statements -------------------------------------------------------------------------------------------

    def ack(self, session: Session, ids: Sequence[str]) -> Result:
        """Delete what was delivered: each in a transaction of its own, or all in the session's open one."""
        session.admit()
        result = Result()
        for start in range(0, len(ids), _ACKS_PER_LOCK):
            with session.lock_scope:
                self.expire_due()
                self._ack_some(session, ids[start : start + _ACKS_PER_LOCK], result)
        return result

    def _ack_some(self, session: Session, ids: Sequence[str], result: Result) -> None:
        ended: list[Delivery] = []
        self._warm_cache(session, ids)
        try:
            for id in ids:
                delivery = self._pending(session, id)
                if self._is_hidden(session, delivery):
                    self._requeue(delivery, 0, None)
                elif session.transaction is not None:
                    self._ack_in_open_transaction(session, delivery, result)
                else:
                    self._ack_in_own_transaction(session, delivery, result)
                    ended.append(delivery)
        finally:
            self._consuming.notify_after(ended, session.database.state.sequence)

    def _warm_cache(self, session: Session, ids: Sequence[str]) -> None:
        desk = self._consuming.dispatcher
        elements = [desk.deliveries[id].queued_element.element for id in ids if id in desk.deliveries]
        session.database.state.graph.warm(elements)
        desk.warm(elements)

    def _is_hidden(self, session: Session, delivery: Delivery) -> bool:
        """What the actor may not see any more is to it as if it were gone: nothing is left to do, and it stays."""
        if session.actor is None:
            return False
        _, guard = execution.statement_context(session, ())
        element = session.database.state.graph.get(delivery.queued_element.element)
        return guard is not None and element is not None and not guard.can_see(element)

    def _ack_in_own_transaction(self, session: Session, delivery: Delivery, result: Result) -> None:
        database = session.database
        database.check_writable()
        element = database.state.graph.get(delivery.queued_element.element)
        if element is not None and self._can_delete_directly(session, element):
            self._ack_direct(session, delivery, element, result)
            return
        transaction = database.state.begin()
        delivery.apply(DeliveryEvent.ENLIST)
        try:
            now = self._delete(session, transaction, delivery)
            execution.commit_transaction(
                session, transaction, now, result, cause=f"ack {delivery.id}", meta=self.notes_for([delivery])
            )
        except BaseException:
            delivery.apply(DeliveryEvent.ROLLBACK)
            database.watching.retract_uncommitted(transaction)
            raise
        result.deleted += transaction.counts.deleted
        result.unlinked += transaction.counts.unlinked
        self._finish(delivery)

    def _can_delete_directly(self, session: Session, element: Element) -> bool:
        """Whether nobody can refuse the deletion, and nobody looks at it before the commit."""
        database = session.database
        return (
            session.actor is None
            and not database.watching.uncommitted_index.shapes
            and database.state.can_delete_directly(element)
        )

    def _ack_direct(self, session: Session, delivery: Delivery, element: Element, result: Result) -> None:
        """The commit is the deletion: what a transaction would come to, at a third of the price."""
        database = session.database
        delivery.apply(DeliveryEvent.ENLIST)
        try:
            facts = self.notes_for([delivery])
            commit = database.state.commit_deletion(
                element, database.clock.now(), f"ack {delivery.id}", facts
            )
            database.log_writer.append(commit.sequence, commit)
            database.watching.follow(commit, 0)
        except BaseException:
            delivery.apply(DeliveryEvent.ROLLBACK)
            raise
        result.tick = commit.tick
        result.deleted += 1
        self._finish(delivery)

    def _ack_in_open_transaction(self, session: Session, delivery: Delivery, result: Result) -> None:
        opened = session.transaction
        assert opened is not None
        opened.check_usable()
        before = opened.transaction.counts.deleted, opened.transaction.counts.unlinked
        self._delete(session, opened.transaction, delivery)
        result.deleted += opened.transaction.counts.deleted - before[0]
        result.unlinked += opened.transaction.counts.unlinked - before[1]
        delivery.apply(DeliveryEvent.ENLIST)
        opened.enlisted_deliveries.append(delivery)
        session.database.watching.publish_uncommitted(opened.transaction)

    def _delete(self, session: Session, transaction: Transaction, delivery: Delivery) -> Any:
        """Nothing is left to do when the element is gone already (B34). Returns what now() is."""
        context, guard = execution.statement_context(session, (), view=transaction.view)
        id = delivery.queued_element.element
        element = transaction.view.get(id)
        if element is not None:
            delete_element(transaction, element, guard)
        elif session.database.state.graph.get(id) is not None and id not in transaction.before_images:
            text = (
                f"The transaction began before '{id}' was there: roll it back and ACK '{delivery.id}' again"
            )
            raise TransactionError("E5002", text, fields={"id": id, "delivery_id": delivery.id})
        return context.now

    def nack(
        self,
        session: Session,
        id: str,
        *,
        retry: bool = True,
        delay: timedelta | None = None,
        cause: str | None = None,
    ) -> Result:
        """Give it back for another attempt, now or later; or for none. Takes effect at once, also inside BEGIN."""
        session.admit()
        result = Result()
        with session.lock_scope:
            session.database.check_writable()
            problem = self._fail_attempt(self._find(session, id), retry=retry, delay=delay, cause=cause)
        if problem is not None:
            result.warnings = (problem.text,)
        return result

    def extend(self, session: Session, id: str, by: timedelta | None) -> Result:
        """The lease runs from now on, for the time given or for another ack_timeout."""
        with session.lock_scope:
            delivery = self._find(session, id)
            span = by if by is not None else delivery.consumer.watch.options.ack_timeout
            self._consuming.dispatcher.extend_lease(delivery, self._consuming.now + span.total_seconds())
            self.schedule_expiry()
        return Result()

    def release(self, session: Session, id: str) -> Result:
        """Give it back untried."""
        with session.lock_scope:
            self._requeue(self._find(session, id), 0, None)
        return Result()

    def renew(self, session: Session, ids: Iterable[str]) -> list[str]:
        """New leases for those that are still this session's and still wanted; the others are no work any more."""
        desk, kept = self._consuming.dispatcher, []
        with session.lock_scope:
            for id in ids:
                try:
                    delivery = self._find(session, id)
                except WatchError:
                    continue
                if delivery.is_withdrawn:
                    self._requeue(delivery, 0, None)
                    continue
                span = delivery.consumer.watch.options.ack_timeout
                desk.extend_lease(delivery, self._consuming.now + span.total_seconds())
                kept.append(id)
            self.schedule_expiry()
        return kept

    def _find(self, session: Session, id: str) -> Delivery:
        """A pending delivery of this session; for all others E8004, whatever the reason."""
        self.expire_due()
        return self._pending(session, id)

    def _pending(self, session: Session, id: str) -> Delivery:
        delivery = self._consuming.dispatcher.deliveries.get(id)
        own = delivery is not None and (
            session.actor is None or delivery.consumer.watch.session_id == session.id
        )
        if delivery is None or not own or delivery.state is not DeliveryState.PENDING:
            raise invalid_delivery_id(id)
        return delivery

    # --- transactions that acknowledge ------------------------------------------------------------------------

    def check_enlisted(self, deliveries: Iterable[Delivery]) -> None:
        """Before COMMIT: a delivery whose time ran out meanwhile may be in other hands."""
        self.expire_due()
        for delivery in deliveries:
            if delivery.state is not DeliveryState.ENLISTED:
                raise invalid_delivery_id(delivery.id)

    def notes_for(self, deliveries: Iterable[Delivery]) -> tuple[Note, ...]:
        """What is stored with the commit that acknowledges: their attempts are forgotten."""
        desk = self._consuming.dispatcher
        if not desk.attempts:
            return ()
        elements = {delivery.queued_element.element for delivery in deliveries}
        return tuple((_key(e, group), "") for e in elements for group in desk.attempts.get(e, ()))

    def complete(self, deliveries: Sequence[Delivery]) -> None:
        """They are committed."""
        for delivery in deliveries:
            self._finish(delivery)
        self._consuming.notify_after(deliveries, self._consuming.watching.database.state.sequence)

    def _finish(self, delivery: Delivery) -> None:
        desk = self._consuming.dispatcher
        desk.attempts.pop(delivery.queued_element.element, None)
        desk.finish(delivery, DeliveryEvent.COMMIT)

    def restore_pending(self, deliveries: Iterable[Delivery]) -> None:
        """They are pending again."""
        for delivery in deliveries:
            delivery.apply(DeliveryEvent.ROLLBACK)

    # --- failing ----------------------------------------------------------------------------------------------

    def end_for_consumer(self, delivery: Delivery, *, lost: bool) -> None:
        """Its consumer is gone: a job that kills its workers shall end as a dead letter."""
        if not lost or self._consuming.watching.database.read_only is not None:
            self._requeue(delivery, 0, None)
            return
        self._fail_attempt(delivery, cause="the consumer was lost")

    def expire_due(self) -> None:
        """End what has run out of time."""
        moment = self._consuming.dispatcher.next_deadline
        now = self._consuming.now
        if moment is None or moment > now or self._consuming.watching.database.read_only is not None:
            return
        for who in self._consuming.dispatcher.pop_due(now):
            if isinstance(who, Delivery):
                self._expire(who)
            else:
                for place in who.entries:
                    self._consuming.notify_consumers(place.pool)

    def _expire(self, delivery: Delivery) -> None:
        watch: Watch = delivery.consumer.watch
        timeout = watch.options.ack_timeout
        text = f"Acknowledgment timeout: delivery '{delivery.id}' not acknowledged within {duration_to_text(timeout)}"
        fields = {"delivery_id": delivery.id, "timeout": timeout}
        watch.details.add_error(WatchError("E8003", text, fields=fields))
        self._fail_attempt(delivery, timeout=True, cause="ack_timeout")

    def _fail_attempt(
        self,
        delivery: Delivery,
        *,
        timeout: bool = False,
        retry: bool = True,
        delay: timedelta | None = None,
        cause: str | None = None,
    ) -> WatchError | None:
        """Count the attempt; hand out again, or bury. Returns why the element could not be buried."""
        desk, database = self._consuming.dispatcher, self._consuming.watching.database
        element, group = delivery.queued_element.element, delivery.consumer.group.name
        if delivery.is_withdrawn:  # nobody wants it any more (B34)
            self._requeue(delivery, database.state.sequence, None)
            return None
        past = desk.attempts_of(element, group)
        attempts = Attempts(past.failures + (not timeout), past.timeouts + timeout)
        if not retry or attempts.total > delivery.consumer.watch.options.max_redeliveries:
            reason = REASON_MAX_REDELIVERIES if retry else REASON_NO_RETRY
            return self._dead_letter(delivery, attempts, reason, cause)
        seconds = delay.total_seconds() if delay is not None else 0.0
        if seconds > 0:
            until_ms = timestamp_to_ms(database.clock.now()) + int(seconds * 1000)
            attempts = attempts._replace(until_ms=until_ms)
        sequence = self._store(element, group, attempts)
        self._requeue(delivery, sequence, self._consuming.now + seconds if seconds > 0 else None)
        self.schedule_expiry()
        return None

    def _requeue(self, delivery: Delivery, sequence: int, until: float | None) -> None:
        self._consuming.dispatcher.requeue(delivery, sequence=sequence, until=until)
        self._consuming.notify_after([delivery], sequence)

    def _dead_letter(
        self, delivery: Delivery, attempts: Attempts, reason: str, cause: str | None
    ) -> WatchError | None:
        """Move it to the dead letters; what cannot be moved is kept, parked, and its consumer is told (E8007)."""
        desk, watch = self._consuming.dispatcher, delivery.consumer.watch
        try:
            self._consuming.dead_letters.move(delivery, attempts, reason, cause)
        except StoreError:
            raise
        except VedetteError as error:
            problem = error if error.code == "E8007" else self._dead_letter_error(delivery, error)
            assert isinstance(problem, WatchError)
            watch.details.add_error(problem)
            watching = self._consuming.watching
            log.warning(
                "A dead letter cannot be moved, so its element is parked: %s",
                error,
                extra={
                    "action": "consume.parked",
                    "tenant": watching.database.name,
                    "watch": watching.id_of(watch),
                    "element": delivery.queued_element.element,
                    "code": error.code,
                },
            )
            self._store(
                delivery.queued_element.element, delivery.consumer.group.name, attempts._replace(parked=True)
            )
            desk.park(delivery)
            self._consuming.notify_after([delivery], self._consuming.watching.database.state.sequence)
            return problem
        self._consuming.notify_after([delivery], self._consuming.watching.database.state.sequence)
        return None

    def _dead_letter_error(self, delivery: Delivery, error: VedetteError) -> WatchError:
        """What stands in the way may be hidden from the watch's actor: only the log names it then."""
        member = delivery.consumer
        reason = "it cannot be deleted" if member.watch.shape.checks_policies else error.text
        return dead_letter_failed(
            delivery.id, self._consuming.dead_letter_destinations.get(member.number), reason
        )

    # --- what is stored ---------------------------------------------------------------------------------------

    def _store(self, element: str, group: str | None, attempts: Attempts | None) -> int:
        """Note it; returns the commit that must be durable first."""
        database = self._consuming.watching.database
        self._consuming.dispatcher.set_attempts(element, group, attempts)
        value = "" if attempts is None else json.dumps(attempts._asdict())
        commit = database.state.next_note_commit(database.clock.now(), ((_key(element, group), value),))
        database.log_writer.append(commit.sequence, commit)
        return commit.sequence

    def clear_attempts(self, element: str, group: str | None) -> None:
        if self._consuming.watching.database.read_only is None:
            self._store(element, group, None)

    def unpark(self, element: str) -> None:
        """Hand out what could not be moved, as if it were new to the group that failed on it."""
        sequence, known = 0, self._consuming.dispatcher.attempts.get(element, {})
        for group in [group for group, attempts in known.items() if attempts.parked]:
            sequence = self._store(element, group, None)
        desk = self._consuming.dispatcher
        desk.unpark(element, sequence)
        for place in desk.entries_of(element):
            self._consuming.notify_consumers(place.pool)

    def restore(self, meta: dict[str, str]) -> None:
        """Attempts and delays of earlier processes; elements that are gone need none."""
        graph = self._consuming.watching.database.state.graph
        for key, value in meta.items():
            if key.startswith(_ATTEMPT) and value:
                element, _, group = key.removeprefix(_ATTEMPT).partition(".")
                if graph.get(element) is not None:
                    self._consuming.dispatcher.set_attempts(
                        element, group or None, Attempts(**json.loads(value))
                    )

    # --- time -------------------------------------------------------------------------------------------------

    def schedule_expiry(self) -> None:
        """Be called when the next lease or delay ends."""
        if self._consuming.watching.database.read_only is not None:
            return  # nothing can end any more: `lapse` would leave it, and be called again at once
        moment = self._consuming.dispatcher.next_deadline
        if moment is None or (self._armed is not None and self._armed[0] <= moment):
            return
        if self._armed is not None:
            self._armed[1].cancel()
        clock = self._consuming.watching.database.clock
        self._armed = (moment, clock.call_at(moment, self._on_timer))

    def _on_timer(self) -> None:
        """The clock calls: leases end, delays end; then wait until what that means is durable."""
        database = self._consuming.watching.database
        turn = LockScope(database)
        try:
            with turn:
                self._armed = None
                self.expire_due()
                self.schedule_expiry()
            if database.watching.triggers:
                database.watching.triggers.run_pending(turn)
            database.wait_durable(turn)
        except VedetteError as error:
            extra = {"action": "consume.lapse", "tenant": database.name, "code": error.code}
            log.warning("Expired leases could not be ended: %s", error, extra=extra)

    def stop(self) -> None:
        if self._armed is not None:
            self._armed[1].cancel()


def _key(element: str, group: str | None) -> str:
    return f"{_ATTEMPT}{element}" if group is None else f"{_ATTEMPT}{element}.{group}"


def invalid_delivery_id(id: str) -> WatchError:
    text = f"Invalid delivery ID: '{id}' not found or already processed"
    return WatchError("E8004", text, fields={"delivery_id": id})


def dead_letter_failed(id: str, destination: str | None, reason: str) -> WatchError:
    text = f"Dead letter failed: could not move delivery '{id}' to '{destination or _DEFAULT_DESTINATION}' - {reason}"
    return WatchError("E8007", text, fields={"delivery_id": id, "dead_letter": destination, "reason": reason})
