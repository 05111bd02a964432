"""Creates watches: options, rights, captured session values, initial state. Also restores stored watches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vedette.element import View
from vedette.engine.commit.history import LogTrimmed
from vedette.engine.context.prepared import PreparedStatement
from vedette.engine.context.request import StatementRequest, resolve_id
from vedette.engine.context.session_context import DetachedViewer
from vedette.engine.watch_service.compile import CompiledWatch, compile_watch
from vedette.engine.watch_service.consume_checks import check_consumable
from vedette.engine.watch_service.durable_watches import since_unavailable
from vedette.engine.watch_service.normalize import NormalizedWatch, is_placeholder, placeholder_index
from vedette.engine.watch_service.options import option_evaluator, parse_stored_filter
from vedette.engine.watch_service.rights import check_watch_rights
from vedette.errors import MutationError, PolicyError, WatchError
from vedette.language.compile.execution_context import ExecutionContext
from vedette.language.syntax import statements as ast
from vedette.policy.guard import PolicyGuard
from vedette.values import timestamp_to_ms
from vedette.watch.buffer import in_order
from vedette.watch.delta import Delta
from vedette.watch.evaluation.counted import count_deltas, count_row
from vedette.watch.evaluation.reevaluation import comparable_rows, current_rows, order_values_by_identity
from vedette.watch.options import WatchOptions, read_options
from vedette.watch.shapes.resolver import SessionValue
from vedette.watch.status import WatchStatus
from vedette.watch.watch import Watch
from vedette.watch.windows import WindowState

if TYPE_CHECKING:
    from vedette.engine.session.session import Session
    from vedette.engine.watch_service.service import WatchService

__all__ = ["WatchCreation"]

_DEFAULTS = WatchOptions()
_MAX_CACHED_FORMS = 1024
"""Number of statements whose normalized form is cached."""


class WatchCreation:
    """Turns a WATCH statement into a running watch."""

    def __init__(self, watching: WatchService) -> None:
        self._watching = watching
        self._forms: dict[int, NormalizedWatch] = {}
        """By the id of the prepared statement; the form holds a reference to it."""

    def create(self, request: StatementRequest) -> Watch:
        """Execute WATCH: create a watch with its initial events, outside of any transaction, on committed state."""
        statement = request.prepared.statement
        assert isinstance(statement, ast.Watch)
        session = request.session
        with session.lock_scope:
            values = option_evaluator(request)
            options = read_options(statement.options, values) if statement.options else _DEFAULTS
            if not options.has_expressions:
                options = self._watching.intern_options(options)
            self._check_limits(session)
            if options.delivery == "reliable" or statement.actions:
                self._watching.database.check_writable()  # a durable watch must be stored
            guarded = session.actor is not None and bool(self._watching.database.schema.policies)
            compiled = self._compile(request, options, guarded)
            guard = check_watch_rights(request, compiled) if guarded else None
            constants = request.constants + self.capture(request, compiled, guard)
            if options.mode == "consume":
                check_consumable(compiled.shape, options, acts=bool(compiled.actions))
            watch = self._new_watch(compiled, constants, options, session.id, session.actor)
            if statement.name is not None:
                watch.details.name = statement.name
            own = self._watching.by_session.setdefault(session.id, {})
            own[watch.number] = None
            try:
                self._set_destination(watch, request)
                self._start(watch)
            except BaseException:
                del own[watch.number]
                self._discard(watch)
                raise
            if statement.name is not None:
                session.bindings[statement.name] = self._watching.id_of(watch)
            self._watching.windows.start(watch)
            if watch.is_durable:
                watch.details.request = request
                self._watching.durable_watches.store_new(watch, request)
            self._watching.layer0_changes.watch_added(watch)
        return watch

    def _compile(self, request: StatementRequest, options: WatchOptions, guarded: bool) -> CompiledWatch:
        """Compile the statement. Compiled shapes are shared and kept while a watch uses them."""
        known = self.find_compiled(request, guarded)
        if known is None:
            form = self._form(request.prepared)
            known = self._compile_form(form.rewrite(request), options, guarded)
            self._watching.compiled_watches[form.key, request.signature, guarded] = known
            self._watching.forget_unused_shapes()
        return known

    def _compile_form(self, request: StatementRequest, options: WatchOptions, guarded: bool) -> CompiledWatch:
        """Compile the normalized form. Its options refer to elements by placeholder."""
        statement = request.prepared.statement
        assert isinstance(statement, ast.Watch)
        if options.has_expressions:
            options = read_options(statement.options, option_evaluator(request))
        return compile_watch(request, options, guarded=guarded)

    def find_compiled(self, request: StatementRequest, guarded: bool) -> CompiledWatch | None:
        """The compiled shape of an equal watch for the current schema, or None."""
        key = (self._form(request.prepared).key, request.signature, guarded)
        known = self._watching.compiled_watches.get(key)
        return known if known is not None and known.shape.schema is self._watching.database.schema else None

    def _form(self, prepared: PreparedStatement) -> NormalizedWatch:
        form = self._forms.get(id(prepared))
        if form is None or form.prepared is not prepared:
            if len(self._forms) >= _MAX_CACHED_FORMS:
                self._forms.clear()
            form = self._forms[id(prepared)] = NormalizedWatch(prepared)
        return form

    def capture(
        self,
        request: StatementRequest,
        compiled: CompiledWatch,
        guard: PolicyGuard | None,
        known: Mapping[SessionValue, Any] | None = None,
    ) -> tuple[Any, ...]:
        """Capture session values. Values in `known` are reused."""
        session = request.session
        values: list[Any] = []
        for capture in compiled.captures:
            if known is not None and capture in known:
                values.append(known[capture])
                continue
            if capture.kind == "self" and session.actor is None:
                raise PolicyError("E7002", "#self needs an actor: begin a session AS someone first")
            if capture.kind in ("self", "current_actor"):
                values.append(session.actor)
            elif capture.kind == "current_session":
                values.append(session.id)
            else:
                name, quoted = capture.name, capture.quoted
                if is_placeholder(capture):
                    name, quoted = self._form(request.prepared).references[placeholder_index(capture)]
                values.append(self._resolve_reference(session, name, quoted, guard))
        return tuple(values)

    def _resolve_reference(self, session: Session, name: str, quoted: bool, guard: PolicyGuard | None) -> str:
        id = name if quoted else session.bindings.get(name, name)
        element = self._watching.database.state.graph.get(id)
        known = element is not None and (guard is None or id == session.actor or guard.can_see(element))
        if not known and self._watching.database.layer0.type_of(id, session) is None:
            text = f"#{name} was not found: nothing is bound to it or has this id"
            raise MutationError("E3601", text, fields={"id": id})
        return id

    def _set_destination(self, watch: Watch, request: StatementRequest) -> None:
        """Resolve the dead-letter destination. Whether it exists is checked when a letter is moved (E8007)."""
        reference = watch.options.dead_letter if watch.options.mode == "consume" else None
        if reference is not None:
            self._watching.consuming.dead_letter_destinations[watch.number] = resolve_id(request, reference)

    def _check_limits(self, session: Session) -> None:
        limits = session.watch_limits
        if limits is None:
            return
        watches = [
            self._watching.committed_index.watches.get(number)
            for number in self._watching.by_session.get(session.id, ())
        ]
        own = sum(watch is not None and watch.status is not WatchStatus.CANCELLED for watch in watches)
        for current, limit in (
            (own, limits[0]),
            (len(self._watching.committed_index.watches) - self._watching.ended_count, limits[1]),
        ):
            if current >= limit:
                fields = {"current": current, "limit": limit}
                raise WatchError("E8006", f"Too many watches: {current} of {limit}", fields=fields)

    def _new_watch(
        self,
        compiled: CompiledWatch,
        constants: tuple[Any, ...],
        options: WatchOptions,
        owner: str | None,
        actor: str | None,
    ) -> Watch:
        now = self._watching.database.clock.now()
        watch = Watch(
            self._watching.committed_index.next_number(),
            compiled.shape,
            constants,
            options,
            owner=owner,
            actor=actor,
            created_ms=timestamp_to_ms(now),
        )
        if actor is not None:
            self._watching.watching_actors.add(actor)
        if compiled.actions:
            watch.details.actions = compiled.actions
            watch.details.actions_size = compiled.size
        if options.window.kind != "none":
            watch.details.window = WindowState(options.window, now)
        return watch

    def _discard(self, watch: Watch) -> None:
        """Undo the creation of a watch whose initial state cannot be evaluated."""
        self._watching.consuming.dead_letter_destinations.pop(watch.number, None)
        if watch.number in self._watching.committed_index.watches:
            if not watch.has_details or not watch.details.is_unindexed:
                self._watching.index_of(watch).remove(watch)
            self._watching.committed_index.discard(watch)

    def _start(self, watch: Watch) -> None:
        """Send the initial state, or replay from `since`, and index the watch."""
        if watch.options.mode == "consume":
            self._watching.consuming.add_consumer(watch)
            return
        initial = watch.options.initial
        if watch.options.visibility == "immediate":
            self._watching.load_open_transactions()
        if watch.shape.reads_layer0:  # the watch itself is among the Layer 0 elements it matches
            self._watching.index_of(watch).add(watch)
            self.push_initial(watch, self._watching.database.state.graph)
            return
        if initial.kind != "since":
            self.push_initial(watch, self._watching.database.state.graph)
            self._watching.index_of(watch).add(watch)
            return
        if initial.tick >= self._watching.database.state.tick:
            self.push_initial(watch, self._watching.database.state.graph)
            self._watching.index_of(watch).add(watch)
            return
        if watch.actor is not None and initial.tick < self._watching.database.last_policy_change.tick:
            raise since_unavailable(
                initial.tick,
                "older than the latest policy change, so what the actor could see then is unknown",
            )
        try:
            sequence = self._watching.database.history.sequence_of_tick(initial.tick)
            self._watching.database.history.commits_after(sequence)
        except LogTrimmed:
            raise since_unavailable(initial.tick) from None
        watch.details.first_sequence = sequence + 1
        self._watching.catch_up.catch_up(watch, sequence)

    def push_initial(
        self, watch: Watch, view: View, tick: int | None = None, *, repeat: bool = False, now: Any = None
    ) -> None:
        """Build the state that counting watches need and append the initial event, as of this view (by default the
        present).

        `repeat`: append an initial event although the watch has had events before. `now`: the time of evaluation.
        """
        state, details_needed = self._watching.database.state, watch.shape.strategy != "rows"
        windowed_groups = watch.shape.aggregates and watch.options.window.kind != "none"
        first = watch.options.initial.kind == "full" and watch.position == 0
        full = (first or repeat) and bool(watch.shape.columns)
        if not details_needed and not full:
            return
        context = self._watching.watch_context(watch, view, now)
        rows = self.rebuild_counts(watch, context)
        if full and not windowed_groups:
            delta = Delta("initial", None)
            delta.matches = self._in_order(watch, context, rows)
            watch.append_event(delta, state.tick if tick is None else tick, state.sequence, watch.created_ms)

    def _in_order(
        self, watch: Watch, context: ExecutionContext, rows: Sequence[dict[str, Any]]
    ) -> list[Mapping[str, Any]]:
        """Sort the snapshot by the watch's order, if it has one."""
        shape = watch.shape
        if not shape.order or shape.distinct:
            return list(rows)
        orders = order_values_by_identity(watch, context)
        found = current_rows(watch, context)
        given = [(orders.get(identity, ()), row) for identity, row in found.items()]
        return list(in_order(given, tuple(descending for _, descending in shape.order)))

    def rebuild_counts(self, watch: Watch, context: ExecutionContext) -> list[dict[str, Any]]:
        strategy = watch.shape.strategy
        if strategy == "rows":
            return list(current_rows(watch, context).values())
        details = watch.details
        if strategy == "reevaluated":
            details.evaluated_ms = timestamp_to_ms(context.now())
            details.last_result, details.last_order_values = (
                comparable_rows(watch, context),
                order_values_by_identity(watch, context),
            )
            return (
                []
                if details.window is not None and watch.shape.aggregates
                else list(details.last_result.values())
            )
        details.reset()
        identities: dict[Any, None] = {}
        if strategy == "groups" and not watch.shape.group_keys:
            details.start_groups(watch.shape)
            identities[()] = None
        for row in watch.shape.full_query.run(context):
            identities[count_row(watch, row, 1)] = None
        return [dict(delta.match or {}) for delta in count_deltas(watch, identities, context)]

    def restore_watch(self, facts: dict[str, Any], constants: tuple[Any, ...]) -> Watch | None:
        """Recreate a stored watch without a session.

        Return None if its statement is invalid in the current schema.
        """
        prepared, _ = self._watching.database.statements.prepare_one(facts["text"])
        statement = prepared.statement
        assert isinstance(statement, ast.Watch)
        viewer: Any = DetachedViewer(self._watching.database, None)
        request = StatementRequest(viewer, prepared, constants[: facts["given"]], facts["text"])
        options = read_options(statement.options, option_evaluator(request))
        options = replace(options, **facts.get("altered", {}))
        guarded = facts["actor"] is not None and bool(self._watching.database.schema.policies)
        compiled = self._compile(request, options, guarded)
        if "filter" in facts:
            options = replace(options, filter=parse_stored_filter(facts["filter"]))
            compiled = compiled.refiltered(options.filter)
            if (
                len(compiled.captures) != len(constants) - facts["given"]
            ):  # stored before references had placeholders
                compiled = compile_watch(request, options, guarded=guarded)
        watch = self._new_watch(compiled, constants, options, None, facts["actor"])
        if "filter" in facts:
            self._watching.compiled_watches[watch.number, "altered"] = compiled
        watch.details.name, watch.details.request = facts["name"], request
        watch.details.has_altered_options, watch.details.has_altered_filter = (
            "altered" in facts,
            "filter" in facts,
        )
        watch.status = WatchStatus(facts.get("status", WatchStatus.ACTIVE))
        watch.created_ms = facts["created_ms"]
        if "destination" in facts:
            self._watching.consuming.dead_letter_destinations[watch.number] = facts["destination"]
        self._watching.committed_index.watches[watch.number] = watch
        self._watching.windows.start(watch)
        return watch

    def restore(self, meta: dict[str, str]) -> None:
        """Restore what was stored before the restart."""
        self._watching.consuming.settlement.restore(meta)
        self._watching.consuming.dead_letters.restore(meta)
        self._watching.durable_watches.restore(meta)
