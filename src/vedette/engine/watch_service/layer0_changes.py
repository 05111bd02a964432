"""Sends events to watches over Layer 0: the read-only elements that describe watches, sessions and the ontology.

Layer 0 elements are not stored, so their changes are in no commit (docs/design/decisions/0013-layer0-is-virtual.md).
Code that changes a watch or a session does so inside `track`. It computes the elements of the watch or session before
and after the change, and evaluates the differences as if a commit had made them. Changes of dead letters and of the
ontology, and watches that depend on counters, are evaluated again as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from vedette.element import Element, View
from vedette.engine.context.session_context import DetachedViewer
from vedette.engine.layer0.view import Layer0View, Layer0Visibility
from vedette.errors import VedetteError
from vedette.graph.overlay import Overlay
from vedette.language.compile.execution_context import ExecutionContext
from vedette.policy.actor_view import ActorView
from vedette.queue.reports import DeadLetter
from vedette.values import timestamp_to_ms
from vedette.watch.evaluation.commit_views import CommitViews
from vedette.watch.evaluation.effects import CommitEffects
from vedette.watch.evaluation.reevaluation import comparable_rows, reevaluate
from vedette.watch.evaluation.rows import watches_of
from vedette.watch.shapes.layer0 import VOLATILE_ATTRIBUTES
from vedette.watch.shapes.shape import WatchShape
from vedette.watch.watch import Watch

if TYPE_CHECKING:
    from vedette.engine.session.session import Session
    from vedette.engine.watch_service.service import WatchService

__all__ = ["Layer0Changes"]

_LETTERS = frozenset({"_DeadLetter", "_watch_dead_letter", "_dead_letter_in"})
_ONTOLOGY = frozenset(
    {"_Ontology", "_NodeType", "_EdgeType", "_AttributeDef", "_ConstraintDef", "_RuleDef", "_PolicyRule"}
)


class _OwnedElement(NamedTuple):
    """A Layer 0 element and the actor that owns it."""

    element: Element
    actor: str | None


_ElementsById = dict[str, _OwnedElement]


class _VisibleView:
    """The watches and sessions that an actor may see. `owners` has the elements that change, with their actors."""

    def __init__(
        self, view: View, visibility: Layer0Visibility, owners: _ElementsById, watching: WatchService
    ) -> None:
        self._view, self._visibility, self._owners, self._watching = view, visibility, owners, watching

    def get(self, id: str) -> Element | None:
        element = self._view.get(id)
        return element if element is not None and self._sees(element) else None

    def scan(self, types: tuple[str, ...]) -> Iterable[Element]:
        return filter(self._sees, self._view.scan(types))

    def lookup(self, owner: str, attribute: str, value: Any) -> Iterable[Element]:
        return filter(self._sees, self._view.lookup(owner, attribute, value))

    def edges_at(self, edge: str, position: int, id: str) -> Iterable[Element]:
        return filter(self._sees, self._view.edges_at(edge, position, id))

    def incident(self, id: str) -> Iterable[Element]:
        return filter(self._sees, self._view.incident(id))

    def _sees(self, element: Element) -> bool:
        if element.type == "_Session":
            return self._visibility.sees_session_of(self._owner(element.id))
        watch = element.targets[1] if element.targets else element.id
        return not element.type.startswith("_") or self._visibility.sees_watch_of(self._owner(watch))

    def _owner(self, id: str) -> str | None:
        known = self._owners.get(id)
        if known is not None:
            return known.actor
        session = self._watching.database.sessions.get(id)
        if session is not None:
            return session.actor
        watch = self._watching.management.find_by_id(id)
        if watch is not None:
            return watch.actor
        letters = self._watching.consuming.dead_letters.letters.values()
        return next((letter.actor for letter in letters if letter.watch == id), None)


class Layer0Changes:
    """Publishes Layer 0 changes to watches. Call every method with the engine lock held."""

    def __init__(self, watching: WatchService) -> None:
        self._watching = watching
        self._database = watching.database
        self._before: _ElementsById = {}
        """The elements as they were before the changes in progress."""
        self._subjects: dict[int, Watch | Session] = {}
        self._depth = 0
        self._saw_every_watch: dict[int, bool] = {}
        """By number of a watch under policies: whether its actor could see every watch at the last evaluation."""

    # --- watchers ---------------------------------------------------------------------------------------------

    @property
    def has_watchers(self) -> bool:
        """True if any watch reads Layer 0."""
        watching = self._watching
        return bool(
            watching.committed_index.layer0_shapes
            or watching.uncommitted_index.layer0_shapes
            or watching.consuming.shape_index.layer0_shapes
        )

    def _shapes(self) -> Iterator[WatchShape]:
        yield from list(self._watching.committed_index.layer0_shapes.values())
        yield from list(self._watching.uncommitted_index.layer0_shapes.values())

    # --- changes ----------------------------------------------------------------------------------------------

    @contextmanager
    def track(self, subject: Watch | Session) -> Iterator[None]:
        """Publish the changes that the block makes to this watch or session. Nested blocks publish once, at the end."""
        if not self._depth and not self.has_watchers:
            yield
            return
        if id(subject) not in self._subjects:
            self._subjects[id(subject)] = subject
            self._before.update(self._elements_of(subject))
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if not self._depth:
                subjects, before = self._subjects, self._before
                self._subjects, self._before = {}, {}
                after: _ElementsById = {}
                for each in subjects.values():
                    after.update(self._elements_of(each))
                self._publish(before, after)

    def watch_added(self, newcomer: Watch) -> None:
        """Publish a new watch to all others. If it reads Layer 0, its own initial result already contains it."""
        if newcomer.shape.reads_layer0 and newcomer.actor is not None:
            self._saw_every_watch[newcomer.number] = self._visibility(newcomer).every_watch
        if self.has_watchers:
            unindexed = newcomer.has_details and newcomer.details.is_unindexed
            indexed = newcomer.shape.reads_layer0 and newcomer.options.mode == "watch" and not unindexed
            if indexed:
                self._watching.index_of(newcomer).remove(newcomer)
            self._publish({}, self._elements_of(newcomer))
            if indexed:
                self._watching.index_of(newcomer).add(newcomer)

    def letter_added(self, letter: DeadLetter) -> None:  # noqa: ARG002 - same signature as letter_removed
        """Publish a new dead letter."""
        if self.has_watchers:
            self._reevaluate(_LETTERS)

    def letter_removed(self, letter: DeadLetter) -> None:
        """Publish the removal of a dead letter.

        If its watch has ended, the element of the watch exists only as long as a dead letter refers to it.
        """
        if not self.has_watchers:
            return
        layer0 = self._database.layer0
        if layer0.find(letter.watch, Layer0Visibility(self._viewer(None))) is None:
            self._publish({letter.watch: _OwnedElement(layer0.ended_watch_element(letter), letter.actor)}, {})
        self._reevaluate(_LETTERS)

    def ontology_changed(self) -> None:
        if self.has_watchers:
            self._reevaluate(_ONTOLOGY)

    def committed(self) -> None:
        """Call after a commit, which may have given an actor the right to see every watch, or have revoked it."""
        if self._saw_every_watch:
            effects = self._new_effects()
            for shape in self._shapes():
                if shape.checks_policies:
                    self._publish_visibility_change(shape, {}, {}, effects)
            self._watching.apply_effects(effects, 0)

    # --- elements ---------------------------------------------------------------------------------------------

    def _elements_of(self, subject: Watch | Session) -> _ElementsById:
        layer0, watching = self._database.layer0, self._watching
        if not isinstance(subject, Watch):
            known = self._database.sessions.get(subject.id) is subject
            return (
                {subject.id: _OwnedElement(layer0.session_element(subject), subject.actor)} if known else {}
            )
        id = watching.id_of(subject)
        if watching.committed_index.watches.get(subject.number) is not subject:
            element = layer0.find(
                id, Layer0Visibility(self._viewer(None))
            )  # a dead letter may still refer to it
            return {id: _OwnedElement(element, subject.actor)} if element is not None else {}
        elements = {id: _OwnedElement(layer0.watch_element(subject), subject.actor)}
        edge = layer0.session_watch_edge(subject)
        if edge is not None:
            elements[edge.id] = _OwnedElement(edge, subject.actor)
        return elements

    def _differences(
        self, before: _ElementsById, after: _ElementsById
    ) -> list[tuple[Element | None, Element | None]]:
        """Return the changed elements. Differences of counters are ignored."""
        layout = self._database.schema.nodes["_Watch"].layout
        counters = [position for name, position in layout.items() if name in VOLATILE_ATTRIBUTES]
        changes: list[tuple[Element | None, Element | None]] = []
        for id in before | after:
            old, new = before.get(id), after.get(id)
            if old is not None and new is not None and old.element.type == "_Watch":
                values = list(old.element.values)
                for position in counters:
                    values[position] = new.element.values[position]
                old = before[id] = old._replace(element=Element(id, "_Watch", tuple(values)))
            if old != new:
                changes.append((old.element if old else None, new.element if new else None))
        return changes

    def _viewer(self, actor: str | None) -> Any:
        return DetachedViewer(self._database, actor)

    def _visibility(self, watch: Watch) -> Layer0Visibility:
        return Layer0Visibility(self._viewer(watch.actor))

    # --- publishing -------------------------------------------------------------------------------------------

    def _new_effects(self) -> CommitEffects:
        state = self._database.state
        return CommitEffects(state.tick, state.sequence, timestamp_to_ms(self._database.clock.now()))

    def _publish(self, before: _ElementsById, after: _ElementsById) -> None:
        changes = self._differences(before, after)
        if not changes:
            return
        effects = self._new_effects()
        touched = frozenset(element.type for change in changes for element in change if element is not None)
        shapes = [
            s for s in self._shapes() if s.strategy != "reevaluated" and not touched.isdisjoint(s.types)
        ]
        already_published: dict[int, Watch] = {}
        for shape in shapes:
            if shape.checks_policies:
                already_published.update(self._publish_visibility_change(shape, before, after, effects))
        with self._without(already_published.values()):
            self._watching.committed_index.evaluate_commit(
                shapes, changes, self._views(before, after, changes), effects
            )
        self._watching.apply_effects(effects, 0)
        self._reevaluate(touched)

    def _views(
        self,
        before: _ElementsById,
        after: _ElementsById,
        changes: Sequence[tuple[Element | None, Element | None]],
    ) -> CommitViews:
        state = self._database.state
        present = Layer0View(state.graph, self._database.layer0, self._viewer(None))
        past = Overlay(present, state.layout)
        for old, new in changes:
            if old is not None:
                past.put(old)
            elif new is not None:
                past.delete(new.id)

        def apply_visibility(watch: Watch, context: ExecutionContext) -> None:
            owners = before if context.view is past else after
            self._apply_visibility(watch, context, context.view, self._visibility(watch), owners)

        return CommitViews(
            lambda: past, present, now=self._database.clock.now, tick=state.tick, policy_view=apply_visibility
        )

    def _apply_visibility(
        self,
        watch: Watch,
        context: ExecutionContext,
        view: View,
        visibility: Layer0Visibility,
        owners: _ElementsById,
    ) -> None:
        """Restrict the context's view to what the watch's actor may see."""
        if watch.actor is None:
            return
        context.view = _VisibleView(view, visibility, owners, self._watching)
        if watch.shape.checks_policies:
            actor_context = ExecutionContext(
                view=context.view,
                now=context.now,
                tick=context.tick,
                actor=watch.actor,
                session=watch.session_id,
            )
            context.view = ActorView(
                self._database.state.program.policies, actor_context, self._database.schema
            )

    def _reevaluate(self, types: frozenset[str]) -> None:
        """Re-evaluate the shapes that read these types and are not incremental."""
        consumers = self._watching.consuming
        consume_shapes = [
            shape
            for shape in consumers.shape_index.layer0_shapes.values()
            if not types.isdisjoint(shape.types)
        ]
        if consume_shapes:
            consumers.refresh_all(consume_shapes)
        effects, graph = self._new_effects(), self._database.state.graph
        for shape in self._shapes():
            if shape.strategy == "reevaluated" and not types.isdisjoint(shape.types):
                for watch in watches_of(shape):
                    try:
                        reevaluate(watch, self._watching.watch_context(watch, graph), effects)
                    except VedetteError as error:
                        effects.add_failure(watch, error)
        self._watching.apply_effects(effects, 0)

    # --- visibility -------------------------------------------------------------------------------------------

    def _publish_visibility_change(
        self, shape: WatchShape, before: _ElementsById, after: _ElementsById, effects: CommitEffects
    ) -> dict[int, Watch]:
        """Publish to watches whose actor gained or lost the right to see every watch, and return these watches.

        Their events already include the change from `before` to `after`.
        """
        changed: dict[int, Watch] = {}
        for watch in watches_of(shape):
            if watch.actor is None:
                continue
            visibility = self._visibility(watch)
            previous = self._saw_every_watch.setdefault(watch.number, visibility.every_watch)
            if previous != visibility.every_watch:
                self._saw_every_watch[watch.number] = visibility.every_watch
                changed[watch.number] = watch
                try:
                    self._reevaluate_watch(watch, visibility, before, after, effects)
                except VedetteError as error:
                    effects.add_failure(watch, error)
        return changed

    def _reevaluate_watch(
        self,
        watch: Watch,
        visibility: Layer0Visibility,
        before: _ElementsById,
        after: _ElementsById,
        effects: CommitEffects,
    ) -> None:
        state = self._database.state
        if watch.shape.strategy == "reevaluated":
            reevaluate(watch, self._watching.watch_context(watch, state.graph), effects)
            return
        views = self._views(before, after, self._differences(before, after))
        previous_visibility = self._visibility(watch)
        previous_visibility.every_watch = not visibility.every_watch
        rows = []
        for view, visible, owners in (
            (views.before.view, previous_visibility, before),
            (views.after.view, visibility, after),
        ):
            context = ExecutionContext(
                view=view,
                constants=watch.constants,
                now=self._database.clock.now,
                tick=state.tick,
                actor=watch.actor,
            )
            self._apply_visibility(watch, context, view, visible, owners)
            rows.append((context, comparable_rows(watch, context)))
        watch.details.last_result = rows[0][1]
        reevaluate(watch, rows[1][0], effects)
        self._watching.rebuild_counts(watch, state.graph)

    @contextmanager
    def _without(self, watches: Iterable[Watch]) -> Iterator[None]:
        """Remove these watches from the index during the block: they have already received the change."""
        indexed = list(watches)
        for watch in indexed:
            self._watching.index_of(watch).remove(watch)
        yield
        for watch in indexed:
            self._watching.index_of(watch).add(watch)

    def forget(self, watch: Watch) -> None:
        self._saw_every_watch.pop(watch.number, None)
