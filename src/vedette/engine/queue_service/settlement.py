"""Ends deliveries: ACK, NACK, EXTEND, release and lease expiry; stores failed attempts.

  attempt.<element>            {"failures", "timeouts", "until_ms", "parked"}    without a group
  attempt.<element>.<group>    the same, in a group; an empty value deletes the entry

A failed attempt is durable before its element is delivered again: the entry carries the sequence of the commit that
stores the attempt. Claims are not stored. They end with the process and do not count as attempts.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from vedette.clock import Timer
from vedette.element import Element
from vedette.engine.commit.lock import LockScope
from vedette.engine.context.result import Result
from vedette.engine.queue_service.note_codec import decode_attempts, encode_attempts
from vedette.engine.statements import execution
from vedette.errors import StoreError, TransactionError, VedetteError, WatchError
from vedette.graph.actions import delete_element
from vedette.graph.transaction import Transaction
from vedette.queue.delivery import Attempts, DeliveryEvent, DeliveryState
from vedette.queue.entry import Delivery
from vedette.queue.reports import REASON_MAX_REDELIVERIES, REASON_NO_RETRY
from vedette.values import duration_to_text, timestamp_to_ms
from vedette.watch.watch import Watch

if TYPE_CHECKING:
    from vedette.engine.queue_service.service import QueueService
    from vedette.engine.session.session import Session

__all__ = ["Note", "Settlement", "dead_letter_failed", "invalid_delivery_id"]

Note = tuple[str, str]
_ATTEMPT = "attempt."
_ACKS_PER_LOCK = 32
"""Number of ACKs processed before the engine lock is released for others."""
_DEFAULT_DESTINATION = "the dead letters"
"""How error texts name the destination of a watch without `dead_letter`."""
log = logging.getLogger(__name__)


class Settlement:
    """Ends deliveries. Methods that take a session acquire the engine lock; call the others with the lock held."""

    def __init__(self, consuming: QueueService) -> None:
        self._consuming = consuming
        self._armed: tuple[float, Timer] | None = None

    # --- statements -------------------------------------------------------------------------------------------

    def ack(self, session: Session, ids: Sequence[str]) -> Result:
        """Delete the delivered elements: each in its own transaction, or all in the session's open transaction."""
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
        dispatcher = self._consuming.dispatcher
        elements = [
            dispatcher.deliveries[id].queued_element.element for id in ids if id in dispatcher.deliveries
        ]
        session.database.state.graph.warm(elements)
        dispatcher.warm(elements)

    def _is_hidden(self, session: Session, delivery: Delivery) -> bool:
        """True if the actor can no longer see the element. ACK then releases the delivery and keeps the element."""
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
        """True if nothing can refuse the deletion and no watch sees uncommitted writes."""
        database = session.database
        return (
            session.actor is None
            and not database.watching.uncommitted_index.shapes
            and database.state.can_delete_directly(element)
        )

    def _ack_direct(self, session: Session, delivery: Delivery, element: Element, result: Result) -> None:
        """Commit the deletion without a transaction. Same result as with one, at about a third of the cost."""
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
        """Delete the element, or do nothing if it is gone already. Return the `now()` of the statement."""
        context, guard = execution.statement_context(session, (), view=transaction.view)
        id = delivery.queued_element.element
        element = transaction.view.get(id)
        if element is not None:
            delete_element(transaction, element, guard)
        elif session.database.state.graph.get(id) is not None and id not in transaction.before_images:
            text = (
                f"The transaction began before '{id}' was created: roll it back and ACK '{delivery.id}' again"
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
        """Return the element for another attempt, now or after `delay`, or dead-letter it (`retry=False`).

        Takes effect immediately, also inside BEGIN.
        """
        session.admit()
        result = Result()
        with session.lock_scope:
            session.database.check_writable()
            problem = self._fail_attempt(self._find(session, id), retry=retry, delay=delay, cause=cause)
        if problem is not None:
            result.warnings = (problem.text,)
        return result

    def extend(self, session: Session, id: str, by: timedelta | None) -> Result:
        """Restart the lease now, for the given time or for another `ack_timeout`."""
        with session.lock_scope:
            delivery = self._find(session, id)
            span = by if by is not None else delivery.consumer.watch.options.ack_timeout
            self._consuming.dispatcher.extend_lease(delivery, self._consuming.now + span.total_seconds())
            self.schedule_expiry()
        return Result()

    def release(self, session: Session, id: str) -> Result:
        """Return the element to its queue without counting an attempt."""
        with session.lock_scope:
            self._requeue(self._find(session, id), 0, None)
        return Result()

    def renew(self, session: Session, ids: Iterable[str]) -> list[str]:
        """Renew the leases of this session's deliveries that still match.

        Return the renewed ids; drop the others.
        """
        dispatcher, kept = self._consuming.dispatcher, []
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
                dispatcher.extend_lease(delivery, self._consuming.now + span.total_seconds())
                kept.append(id)
            self.schedule_expiry()
        return kept

    def _find(self, session: Session, id: str) -> Delivery:
        """Return a pending delivery of this session. Any other id raises E8004."""
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
        """Before COMMIT: raise E8004 for a delivery whose lease expired meanwhile, because another consumer may
        hold it.
        """
        self.expire_due()
        for delivery in deliveries:
            if delivery.state is not DeliveryState.ENLISTED:
                raise invalid_delivery_id(delivery.id)

    def notes_for(self, deliveries: Iterable[Delivery]) -> tuple[Note, ...]:
        """The notes that an acknowledging commit stores: they clear the attempts of its elements."""
        dispatcher = self._consuming.dispatcher
        if not dispatcher.attempts:
            return ()
        elements = {delivery.queued_element.element for delivery in deliveries}
        return tuple((_key(e, group), "") for e in elements for group in dispatcher.attempts.get(e, ()))

    def complete(self, deliveries: Sequence[Delivery]) -> None:
        """Finish deliveries whose transaction has been committed."""
        for delivery in deliveries:
            self._finish(delivery)
        self._consuming.notify_after(deliveries, self._consuming.watching.database.state.sequence)

    def _finish(self, delivery: Delivery) -> None:
        dispatcher = self._consuming.dispatcher
        dispatcher.attempts.pop(delivery.queued_element.element, None)
        dispatcher.finish(delivery, DeliveryEvent.COMMIT)

    def restore_pending(self, deliveries: Iterable[Delivery]) -> None:
        """Make enlisted deliveries pending again after a rollback."""
        for delivery in deliveries:
            delivery.apply(DeliveryEvent.ROLLBACK)

    # --- failing ----------------------------------------------------------------------------------------------

    def end_for_consumer(self, delivery: Delivery, *, lost: bool) -> None:
        """End a delivery whose consumer is gone. If the consumer was lost, the attempt counts as failed.

        Otherwise an element that crashes its consumers would be delivered forever.
        """
        if not lost or self._consuming.watching.database.read_only is not None:
            self._requeue(delivery, 0, None)
            return
        self._fail_attempt(delivery, cause="the consumer was lost")

    def expire_due(self) -> None:
        """End expired leases and delays."""
        moment = self._consuming.dispatcher.next_deadline
        now = self._consuming.now
        if moment is None or moment > now or self._consuming.watching.database.read_only is not None:
            return
        for due in self._consuming.dispatcher.pop_due(now):
            if isinstance(due, Delivery):
                self._expire(due)
            else:
                for entry in due.entries:
                    self._consuming.notify_consumers(entry.queue)

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
        """Count the attempt, then requeue or dead-letter the element.

        Return the error if it could not be dead-lettered.
        """
        dispatcher, database = self._consuming.dispatcher, self._consuming.watching.database
        element, group = delivery.queued_element.element, delivery.consumer.group.name
        if delivery.is_withdrawn:  # the element no longer matches, so there is nothing to retry
            self._requeue(delivery, database.state.sequence, None)
            return None
        past = dispatcher.attempts_of(element, group)
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
        """Move the element to the dead letters. If that fails, park it and report E8007 to its consumer."""
        dispatcher, watch = self._consuming.dispatcher, delivery.consumer.watch
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
                    "action": "queue.parked",
                    "tenant": watching.database.name,
                    "watch": watching.id_of(watch),
                    "element": delivery.queued_element.element,
                    "code": error.code,
                },
            )
            self._store(
                delivery.queued_element.element, delivery.consumer.group.name, attempts._replace(parked=True)
            )
            dispatcher.park(delivery)
            self._consuming.notify_after([delivery], self._consuming.watching.database.state.sequence)
            return problem
        self._consuming.notify_after([delivery], self._consuming.watching.database.state.sequence)
        return None

    def _dead_letter_error(self, delivery: Delivery, error: VedetteError) -> WatchError:
        """The error for the consumer.

        The cause may be hidden from the watch's actor; then only the log names it.
        """
        consumer = delivery.consumer
        reason = "it cannot be deleted" if consumer.watch.shape.checks_policies else error.text
        return dead_letter_failed(
            delivery.id, self._consuming.dead_letter_destinations.get(consumer.number), reason
        )

    # --- what is stored ---------------------------------------------------------------------------------------

    def _store(self, element: str, group: str | None, attempts: Attempts | None) -> int:
        """Store attempts in a note. Return the sequence that must be durable before the next delivery."""
        database = self._consuming.watching.database
        self._consuming.dispatcher.set_attempts(element, group, attempts)
        value = "" if attempts is None else encode_attempts(attempts)
        commit = database.state.next_note_commit(database.clock.now(), ((_key(element, group), value),))
        database.log_writer.append(commit.sequence, commit)
        return commit.sequence

    def clear_attempts(self, element: str, group: str | None) -> None:
        if self._consuming.watching.database.read_only is None:
            self._store(element, group, None)

    def unpark(self, element: str) -> None:
        """Make parked entries of the element deliverable again, with fresh attempts."""
        sequence, known = 0, self._consuming.dispatcher.attempts.get(element, {})
        for group in [group for group, attempts in known.items() if attempts.parked]:
            sequence = self._store(element, group, None)
        dispatcher = self._consuming.dispatcher
        dispatcher.unpark(element, sequence)
        for entry in dispatcher.entries_of(element):
            self._consuming.notify_consumers(entry.queue)

    def restore(self, meta: dict[str, str]) -> None:
        """Load stored attempts and delays. Attempts of deleted elements are ignored."""
        graph = self._consuming.watching.database.state.graph
        for key, value in meta.items():
            if key.startswith(_ATTEMPT) and value:
                element, _, group = key.removeprefix(_ATTEMPT).partition(".")
                if graph.get(element) is not None:
                    self._consuming.dispatcher.set_attempts(
                        element, group or None, decode_attempts(key, value)
                    )

    # --- time -------------------------------------------------------------------------------------------------

    def schedule_expiry(self) -> None:
        """Set the timer to the next lease or delay deadline."""
        if self._consuming.watching.database.read_only is not None:
            return  # a read-only database ends nothing: the timer would fire again immediately
        moment = self._consuming.dispatcher.next_deadline
        if moment is None or (self._armed is not None and self._armed[0] <= moment):
            return
        if self._armed is not None:
            self._armed[1].cancel()
        clock = self._consuming.watching.database.clock
        self._armed = (moment, clock.call_at(moment, self._on_timer))

    def _on_timer(self) -> None:
        """Timer callback: end leases and delays, then wait until the resulting commits are durable."""
        database = self._consuming.watching.database
        lock_scope = LockScope(database)
        try:
            with lock_scope:
                self._armed = None
                self.expire_due()
                self.schedule_expiry()
            if database.watching.triggers:
                database.watching.triggers.run_pending(lock_scope)
            database.wait_durable(lock_scope)
        except VedetteError as error:
            extra = {"action": "queue.expiry_failed", "tenant": database.name, "code": error.code}
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
