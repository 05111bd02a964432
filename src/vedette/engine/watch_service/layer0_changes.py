"""News of Layer 0: watches and sessions came, went or changed, and those who watch them are told.

Nothing of Layer 0 is stored, so there is no commit to tell. Whoever changes a watch or a session says so around it
(`about`): how it looked before and looks after is one difference, like those of a commit, and costs what it touches.
What cannot be said by such differences (dead letters, the ontology, whatever depends on counters) is evaluated anew.
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
from vedette.queue.letter import DeadLetter
from vedette.values import timestamp_to_ms
from vedette.watch.evaluation.effects import CommitEffects, comparable_rows, reevaluate
from vedette.watch.evaluation.rows import CommitViews, watches_of
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
    """An element of Layer 0, and the actor whose it is."""

    element: Element
    actor: str | None


_Facts = dict[str, _OwnedElement]
"""By id."""


class _VisibleView:
    """What an actor sees of a state of watches and sessions; `owners` knows those that the news are about."""

    def __init__(self, view: View, eyes: Layer0Visibility, owners: _Facts, watching: WatchService) -> None:
        self._view, self._eyes, self._owners, self._watching = view, eyes, owners, watching

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
            return self._eyes.sees_session_of(self._owner(element.id))
        watch = element.targets[1] if element.targets else element.id
        return not element.type.startswith("_") or self._eyes.sees_watch_of(self._owner(watch))

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
    """Tells watches of Layer 0. Called with the turn held."""

    def __init__(self, watching: WatchService) -> None:
        self._watching = watching
        self._database = watching.database
        self._before: _Facts = {}
        """What the changes that are under way began with."""
        self._subjects: dict[int, Watch | Session] = {}
        self._depth = 0
        self._every_watch: dict[int, bool] = {}
        """Of actors' watches under policies: whether they saw every watch when they were last told."""

    # --- who is told ------------------------------------------------------------------------------------------

    @property
    def has_watchers(self) -> bool:
        """Whether anybody watches Layer 0."""
        watching = self._watching
        return bool(
            watching.committed_index.layer0_shapes
            or watching.uncommitted_index.layer0_shapes
            or watching.consuming.hub.layer0_shapes
        )

    def _shapes(self) -> Iterator[WatchShape]:
        yield from list(self._watching.committed_index.layer0_shapes.values())
        yield from list(self._watching.uncommitted_index.layer0_shapes.values())

    # --- what happened ----------------------------------------------------------------------------------------

    @contextmanager
    def track(self, subject: Watch | Session) -> Iterator[None]:
        """Whatever is done inside may change this watch or session; it is told once, when the outermost one ends."""
        if not self._depth and not self.has_watchers:
            yield
            return
        if id(subject) not in self._subjects:
            self._subjects[id(subject)] = subject
            self._before.update(self._facts(subject))
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if not self._depth:
                subjects, before = self._subjects, self._before
                self._subjects, self._before = {}, {}
                after: _Facts = {}
                for each in subjects.values():
                    after.update(self._facts(each))
                self._tell(before, after)

    def watch_added(self, newcomer: Watch) -> None:
        """A watch was made, and is where it belongs; what it was told first has itself in it, where that matters."""
        if newcomer.shape.reads_layer0 and newcomer.actor is not None:
            self._every_watch[newcomer.number] = self._eyes(newcomer).every_watch
        if self.has_watchers:
            away = newcomer.has_details and newcomer.details.is_unindexed
            standing = newcomer.shape.reads_layer0 and newcomer.options.mode == "watch" and not away
            if standing:
                self._watching.index_of(newcomer).remove(newcomer)
            self._tell({}, self._facts(newcomer))
            if standing:
                self._watching.index_of(newcomer).add(newcomer)

    def letter_added(self, letter: DeadLetter) -> None:  # noqa: ARG002 - beside letter_went
        """A dead letter was written; its watch is there still."""
        if self.has_watchers:
            self._tell_anew(_LETTERS)

    def letter_removed(self, letter: DeadLetter) -> None:
        """A dead letter was sent back. Of a watch that is gone it may have been the last that remembered it."""
        if not self.has_watchers:
            return
        layer0 = self._database.layer0
        if layer0.find(letter.watch, Layer0Visibility(self._viewer(None))) is None:
            self._tell({letter.watch: _OwnedElement(layer0.ended_watch_element(letter), letter.actor)}, {})
        self._tell_anew(_LETTERS)

    def ontology_changed(self) -> None:
        if self.has_watchers:
            self._tell_anew(_ONTOLOGY)

    def committed(self) -> None:
        """Rights may depend on the graph: whoever sees every watch now, or no longer, is told."""
        if self._every_watch:
            told = self._told()
            for shape in self._shapes():
                if shape.checks_policies:
                    self._publish_visibility_change(shape, {}, {}, told)
            self._watching.apply_effects(told, 0)

    # --- how things look --------------------------------------------------------------------------------------

    def _facts(self, subject: Watch | Session) -> _Facts:
        layer0, watching = self._database.layer0, self._watching
        if not isinstance(subject, Watch):
            known = self._database.sessions.get(subject.id) is subject
            return (
                {subject.id: _OwnedElement(layer0.session_element(subject), subject.actor)} if known else {}
            )
        id = watching.id_of(subject)
        if watching.committed_index.watches.get(subject.number) is not subject:
            element = layer0.find(id, Layer0Visibility(self._viewer(None)))  # its letters may remember it
            return {id: _OwnedElement(element, subject.actor)} if element is not None else {}
        facts = {id: _OwnedElement(layer0.watch_element(subject), subject.actor)}
        edge = layer0.session_watch_edge(subject)
        if edge is not None:
            facts[edge.id] = _OwnedElement(edge, subject.actor)
        return facts

    def _differences(self, before: _Facts, after: _Facts) -> list[tuple[Element | None, Element | None]]:
        """What is different; counters are no news, so each has the counters of the other (spec/watch.md B40)."""
        layout = self._database.schema.nodes["_Watch"].layout
        counters = [place for name, place in layout.items() if name in VOLATILE_ATTRIBUTES]
        changes: list[tuple[Element | None, Element | None]] = []
        for id in before | after:
            old, new = before.get(id), after.get(id)
            if old is not None and new is not None and old.element.type == "_Watch":
                values = list(old.element.values)
                for place in counters:
                    values[place] = new.element.values[place]
                old = before[id] = old._replace(element=Element(id, "_Watch", tuple(values)))
            if old != new:
                changes.append((old.element if old else None, new.element if new else None))
        return changes

    def _viewer(self, actor: str | None) -> Any:
        return DetachedViewer(self._database, actor)

    def _eyes(self, watch: Watch) -> Layer0Visibility:
        return Layer0Visibility(self._viewer(watch.actor))

    # --- telling ----------------------------------------------------------------------------------------------

    def _told(self) -> CommitEffects:
        state = self._database.state
        return CommitEffects(state.tick, state.sequence, timestamp_to_ms(self._database.clock.now()))

    def _tell(self, before: _Facts, after: _Facts) -> None:
        changes = self._differences(before, after)
        if not changes:
            return
        told = self._told()
        touched = frozenset(element.type for change in changes for element in change if element is not None)
        shapes = [
            s for s in self._shapes() if s.strategy != "reevaluated" and not touched.isdisjoint(s.types)
        ]
        aside: dict[int, Watch] = {}
        for shape in shapes:
            if shape.checks_policies:
                aside.update(self._publish_visibility_change(shape, before, after, told))
        with self._without(aside.values()):
            self._watching.committed_index.evaluate_commit(
                shapes, changes, self._scene(before, after, changes), told
            )
        self._watching.apply_effects(told, 0)
        self._tell_anew(touched)

    def _scene(
        self, before: _Facts, after: _Facts, changes: Sequence[tuple[Element | None, Element | None]]
    ) -> CommitViews:
        state = self._database.state
        present = Layer0View(state.graph, self._database.layer0, self._viewer(None))
        past = Overlay(present, state.layout)
        for old, new in changes:
            if old is not None:
                past.put(old)
            elif new is not None:
                past.delete(new.id)

        def put_eyes(watch: Watch, context: ExecutionContext) -> None:
            owners = before if context.view is past else after
            self._apply_visibility(watch, context, context.view, self._eyes(watch), owners)

        return CommitViews(
            lambda: past, present, now=self._database.clock.now, tick=state.tick, sight=put_eyes
        )

    def _apply_visibility(
        self, watch: Watch, context: ExecutionContext, view: View, eyes: Layer0Visibility, owners: _Facts
    ) -> None:
        """Put the eyes of the watch's actor before the context's view."""
        if watch.actor is None:
            return
        context.view = _VisibleView(view, eyes, owners, self._watching)
        if watch.shape.checks_policies:
            own = ExecutionContext(
                view=context.view,
                now=context.now,
                tick=context.tick,
                actor=watch.actor,
                session=watch.session_id,
            )
            context.view = ActorView(self._database.state.program.policies, own, self._database.schema)

    def _tell_anew(self, types: frozenset[str]) -> None:
        """Evaluate afresh what looks at these types and cannot be told by differences."""
        consumers = self._watching.consuming
        held = [shape for shape in consumers.hub.layer0_shapes.values() if not types.isdisjoint(shape.types)]
        if held:
            consumers.refresh_all(held)
        told, graph = self._told(), self._database.state.graph
        for shape in self._shapes():
            if shape.strategy == "reevaluated" and not types.isdisjoint(shape.types):
                for watch in watches_of(shape):
                    try:
                        reevaluate(watch, self._watching.watch_context(watch, graph), told)
                    except VedetteError as error:
                        told.add_failure(watch, error)
        self._watching.apply_effects(told, 0)

    # --- rights -----------------------------------------------------------------------------------------------

    def _publish_visibility_change(
        self, shape: WatchShape, before: _Facts, after: _Facts, told: CommitEffects
    ) -> dict[int, Watch]:
        """Tell those whose right to see every watch came or went; they have then had these changes, too."""
        changed: dict[int, Watch] = {}
        for watch in watches_of(shape):
            if watch.actor is None:
                continue
            eyes = self._eyes(watch)
            had = self._every_watch.setdefault(watch.number, eyes.every_watch)
            if had != eyes.every_watch:
                self._every_watch[watch.number] = eyes.every_watch
                changed[watch.number] = watch
                try:
                    self._tell_one_anew(watch, eyes, before, after, told)
                except VedetteError as error:
                    told.add_failure(watch, error)
        return changed

    def _tell_one_anew(
        self, watch: Watch, eyes: Layer0Visibility, before: _Facts, after: _Facts, told: CommitEffects
    ) -> None:
        state = self._database.state
        if watch.shape.strategy == "reevaluated":
            reevaluate(watch, self._watching.watch_context(watch, state.graph), told)
            return
        scene = self._scene(before, after, self._differences(before, after))
        former = self._eyes(watch)
        former.every_watch = not eyes.every_watch
        rows = []
        for view, sight, owners in (
            (scene.before.view, former, before),
            (scene.after.view, eyes, after),
        ):
            context = ExecutionContext(
                view=view,
                constants=watch.constants,
                now=self._database.clock.now,
                tick=state.tick,
                actor=watch.actor,
            )
            self._apply_visibility(watch, context, view, sight, owners)
            rows.append((context, comparable_rows(watch, context)))
        watch.details.last_result = rows[0][1]
        reevaluate(watch, rows[1][0], told)
        self._watching.rebuild_counts(watch, state.graph)

    @contextmanager
    def _without(self, watches: Iterable[Watch]) -> Iterator[None]:
        """They have been told already."""
        standing = list(watches)
        for watch in standing:
            self._watching.index_of(watch).remove(watch)
        yield
        for watch in standing:
            self._watching.index_of(watch).add(watch)

    def forget(self, watch: Watch) -> None:
        self._every_watch.pop(watch.number, None)
