"""Dead letters: matches that could not be consumed, stored until REDRIVE.

  letter.<id>    a `DeadLetter` as JSON; an empty value means that it was redriven

A letter contains the images of all elements that were deleted with it, so that REDRIVE can restore them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from vedette.engine.context.result import Result
from vedette.engine.queue_service.note_codec import decode_dead_letter, encode_dead_letter
from vedette.engine.queue_service.settlement import dead_letter_failed
from vedette.engine.statements import execution
from vedette.errors import MutationError, VedetteError, WatchError
from vedette.graph.actions import delete_element
from vedette.graph.transaction import Transaction
from vedette.queue.delivery import Attempts, DeliveryEvent
from vedette.queue.entry import Delivery
from vedette.queue.reports import DeadLetter
from vedette.values import timestamp_to_ms, to_json
from vedette.watch.watch import Watch

if TYPE_CHECKING:
    from vedette.engine.queue_service.service import QueueService
    from vedette.engine.session.session import Session

__all__ = ["DeadLetters"]

_LETTER = "letter."


class DeadLetters:
    """The dead letters of one database. `redrive` acquires the engine lock; call the other methods with it held."""

    def __init__(self, consuming: QueueService) -> None:
        self._consuming = consuming
        self.letters: dict[str, DeadLetter] = {}

    @property
    def _database(self) -> Any:
        return self._consuming.watching.database

    # --- moving -----------------------------------------------------------------------------------------------

    def move(self, delivery: Delivery, attempts: Attempts, reason: str, cause: str | None) -> None:
        """Delete the element and store its letter in one commit, with the rights of the system."""
        database, watch = self._database, delivery.consumer.watch
        state = database.state
        destination = self._consuming.dead_letter_destinations.get(watch.number)
        if destination is not None and not self._destination_exists(watch, destination):
            raise dead_letter_failed(delivery.id, destination, "the destination does not exist")
        element = state.graph.get(delivery.queued_element.element)
        delivery.apply(DeliveryEvent.ENLIST)
        if element is None:
            self._consuming.settlement.complete([delivery])
            return
        try:
            transaction = state.begin()
            delete_element(transaction, element, None)
            letter = self._letter(delivery, attempts, reason, cause, destination, transaction)
            facts = (
                (f"{_LETTER}{letter.id}", encode_dead_letter(letter)),
                *self._consuming.settlement.notes_for([delivery]),
            )
            self._commit(transaction, f"dead letter {letter.id}", facts)
        except BaseException:
            delivery.apply(DeliveryEvent.ROLLBACK)
            raise
        self.letters[letter.id] = letter
        self._consuming.settlement.complete([delivery])
        self._consuming.watching.layer0_changes.letter_added(letter)

    def _destination_exists(self, watch: Watch, destination: str) -> bool:
        """True if the destination exists and the watch's actor can see it."""
        graph = self._database.state.graph
        if graph.get(destination) is None:
            return False
        seen = self._consuming.watching.watch_context(watch, graph).view
        return destination == watch.actor or seen.get(destination) is not None

    def _letter(
        self,
        delivery: Delivery,
        attempts: Attempts,
        reason: str,
        cause: str | None,
        destination: str | None,
        transaction: Transaction,
    ) -> DeadLetter:
        database, watch = self._database, delivery.consumer.watch
        deleted = [
            before for before, after in transaction.net_changes() if after is None and before is not None
        ]
        return DeadLetter(
            id=database.state.new_id("l"),
            watch=self._consuming.watching.id_of(watch),
            pattern=self._consuming.watching.management.statement_text(watch),
            group=watch.options.group,
            actor=watch.actor,
            destination=destination,
            reason=reason,
            cause=cause,
            failures=attempts.failures,
            timeouts=attempts.timeouts,
            element=delivery.queued_element.element,
            match=json.dumps(to_json(dict(delivery.row)), ensure_ascii=False),
            created_ms=timestamp_to_ms(database.clock.now()),
            elements=tuple(json.loads(database.encode_image(element)) for element in deleted),
        )

    def _commit(self, transaction: Transaction, cause: str, facts: Iterable[tuple[str, str]]) -> None:
        database = self._database
        now = database.clock.now
        commit, _ = database.state.commit(
            transaction,
            started=database.state.sequence,
            explicit=database.settings.strict_cardinality,
            now=now(),
            context=lambda _: execution.system_context(database, transaction, now),
            cause=cause,
            meta=tuple(facts),
        )
        assert commit is not None
        database.log_writer.append(commit.sequence, commit)
        database.watching.follow(commit, 0)

    # --- redriving --------------------------------------------------------------------------------------------

    def redrive(self, session: Session, id: str) -> Result:
        """Restore the letter's element and everything deleted with it. Its attempts start at zero."""
        session.admit()
        result = Result()
        with session.lock_scope:
            letter = self.letters.get(id)
            if letter is None or not self.may_redrive(session, letter):
                raise MutationError("E3601", f"The dead letter '{id}' was not found", fields={"id": id})
            self._redrive_one(letter, result)
        return result

    def redrive_all(self, session: Session, watch_id: str) -> Result:
        """Redrive all letters and parked entries of a watch.

        Letters that cannot be redriven stay, with a warning.
        """
        session.admit()
        result = Result()
        problems: list[VedetteError] = []
        with session.lock_scope:
            chosen = [
                letter
                for letter in self.letters.values()
                if letter.watch == watch_id and self.may_redrive(session, letter)
            ]
            live = self._consuming.watching.management.find_by_id(watch_id)
            if live is not None:
                self._consuming.watching.management.find(session, watch_id)
            elif not chosen:
                raise WatchError("E8002", "Handle references non-existent watch", fields={"handle": watch_id})
            for letter in chosen:
                try:
                    self._redrive_one(letter, result)
                except VedetteError as error:
                    problems.append(error)
            if live is not None:
                self._unpark(live.number)
        if problems and not result.created and not result.linked:
            raise problems[0]
        result.warnings = tuple(error.text for error in problems)
        return result

    def may_redrive(self, session: Session, letter: DeadLetter) -> bool:
        """True for the actor of the watch, the system context, and actors that may set `_Watch`."""
        if session.actor is None or session.actor == letter.actor:
            return True
        _, guard = execution.statement_context(session, ())
        return guard is not None and guard.allows_meta("SET", "_Watch")

    def _redrive_one(self, letter: DeadLetter, result: Result) -> None:
        database = self._database
        database.check_writable()
        state = database.state
        transaction = state.begin()
        restored = [database.decode_image(image) for image in letter.elements]
        nodes = [element for element in restored if element.targets is None]
        edges = [element for element in restored if element.targets is not None]
        for element in (*nodes, *edges):  # nodes first, then edges: the deletion order was the reverse
            if transaction.view.get(element.id) is not None:
                text = f"'{element.id}' exists again: the dead letter '{letter.id}' cannot be redriven"
                raise MutationError("E3601", text, fields={"id": element.id, "letter": letter.id})
            if element.targets is None:
                transaction.spawn(element)
            elif all(transaction.view.get(target) is not None for target in element.targets):
                transaction.link(state.schema.edges[element.type], element)
        if transaction.view.get(letter.element) is None:
            text = f"A target of '{letter.element}' was deleted: the dead letter '{letter.id}' cannot be redriven"
            raise MutationError("E3601", text, fields={"id": letter.element, "letter": letter.id})
        self._commit(transaction, f"redrive {letter.id}", [(f"{_LETTER}{letter.id}", "")])
        del self.letters[letter.id]
        result.created += transaction.counts.created
        result.linked += transaction.counts.linked
        self._consuming.watching.layer0_changes.letter_removed(letter)

    def _unpark(self, number: int) -> None:
        consumer = self._consuming.consumers.get(number)
        if consumer is None or consumer.queue is None:
            return
        for entry in list(consumer.queue.entries):
            if entry.queued_element is not None and entry.queued_element.parked:
                self._consuming.settlement.unpark(entry.element)

    # --- the store --------------------------------------------------------------------------------------------

    def restore(self, meta: dict[str, str]) -> None:
        for key, value in meta.items():
            if key.startswith(_LETTER) and value:
                letter = decode_dead_letter(key, value)
                self.letters[letter.id] = letter
