"""Transitive edges: find the elements that a path of given length reaches, each once, also over cycles."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

from vedette.element import Element, View
from vedette.language.compile.execution_context import Row
from vedette.language.resolve.tree import ResolvedPath

__all__ = ["SAME_AS_START", "PathEnd", "compile_path_step", "reachable_ids"]

SAME_AS_START: Final = "same"
"""The end of the path must be its start: `e+(x, x)` finds the members of cycles."""

PathEnd: TypeAlias = "Callable[[Row], Any] | int | str | None"
"""An end of a path: a closure that returns a known id, a register to bind, SAME_AS_START, or None for a wildcard."""


def compile_path_step(
    path: ResolvedPath, *, forward: bool, start: PathEnd, end: PathEnd, next_step: Callable[[Row], bool]
) -> Callable[[Row], bool]:
    """Return a step that binds or compares the end of every path, for each start."""

    def step(row: Row) -> bool:
        view: View = row[0].view
        for source in _starts(path, forward, start, row):
            element = view.get(source)
            if isinstance(start, int):
                row[start] = element
            for id in reachable_ids(path, forward, source, view, row[0]):
                if id == source and not _may_end_at_start(path, element):
                    continue
                if end == SAME_AS_START:
                    if id == source and next_step(row):
                        return True
                elif _bind_or_check_end(end, id, view, row) and next_step(row):
                    return True
        return False

    return step


def _starts(path: ResolvedPath, forward: bool, start: PathEnd, row: Row) -> Iterator[str]:
    """Yield the ids at which paths start.

    A start without a variable may be an element that the view hides, if the view shows its edge.
    """
    view: View = row[0].view
    if callable(start):
        known = start(row)
        if known is not None:
            yield known
        return
    seen: dict[str, None] = {}
    if start is not None or path.min_depth == 0:
        seen.update(dict.fromkeys(element.id for element in view.scan(path.source_types)))
    if start is None:
        ends = (0, 1) if path.symmetric else (0,) if forward else (1,)
        edges = [edge.targets or () for edge in view.scan((path.edge,))]
        seen.update(dict.fromkeys(targets[end] for targets in edges for end in ends))
    yield from seen


def _may_end_at_start(path: ResolvedPath, element: Element | None) -> bool:
    """True if a path may end where it starts: the element has a type that is allowed at both ends.

    For an element that the view hides, the edges of the path guarantee the types.
    """
    return path.min_depth > 0 if element is None else element.type in path.types_of_both_ends


def _bind_or_check_end(end: PathEnd, id: str, view: View, row: Row) -> bool:
    if end is None:
        return True
    if callable(end):
        return bool(end(row) == id)
    assert isinstance(end, int)
    row[end] = element = view.get(id)
    return element is not None


def reachable_ids(path: ResolvedPath, forward: bool, start: str, view: View, context: Any) -> Iterator[str]:
    """Yield the ids that a path of `min_depth` to `max_depth` edges from `start` reaches, each once, nearest first."""
    if path.min_depth <= 1:
        yield from _breadth_first(path, forward, start, view, context)
    else:
        yield from _by_levels(path, forward, start, view, context)


def _breadth_first(path: ResolvedPath, forward: bool, start: str, view: View, context: Any) -> Iterator[str]:
    if path.min_depth == 0:
        yield start
    seen = {start} if path.min_depth == 0 else set()
    frontier = [start]
    for _ in range(path.max_depth):
        found: list[str] = []
        for id in frontier:
            for other in _neighbours(path, forward, id, view):
                if other not in seen:
                    seen.add(other)
                    found.append(other)
        context.charge(len(found))
        yield from found
        frontier = found
        if not frontier:
            return
    if not path.depth_is_explicit:
        context.warn(
            f"W3104 path search over '{path.edge}' stopped at the default depth of {path.max_depth} edges; "
            "set [depth: N] to search further"
        )


def _by_levels(path: ResolvedPath, forward: bool, start: str, view: View, context: Any) -> Iterator[str]:
    """Search level by level, for a minimum depth above 1: an element found too early may be reached again later."""
    level = {start}
    yielded: set[str] = set()
    for depth in range(1, path.max_depth + 1):
        level = {other for id in level for other in _neighbours(path, forward, id, view)}
        context.charge(len(level))
        if not level:
            return
        if depth >= path.min_depth:
            yield from sorted(level - yielded)
            yielded |= level


def _neighbours(path: ResolvedPath, forward: bool, id: str, view: View) -> Iterator[str]:
    near, far = (0, 1) if forward else (1, 0)
    for edge in view.edges_at(path.edge, near, id):
        assert edge.targets is not None
        yield edge.targets[far]
    if path.symmetric:
        for edge in view.edges_at(path.edge, far, id):
            assert edge.targets is not None
            yield edge.targets[near]
