"""The import graph of the source tree, type-only imports included, and its cycles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tests.architecture.modules import Module

__all__ = ["cycles", "import_graph"]


def import_graph(modules: Iterable[Module]) -> dict[str, set[str]]:
    """Map the dotted name of each module to the modules that it imports, wherever the import is in the file."""
    by_name = {module.dotted_name: module for module in modules}
    return {
        name: {found for imported in module.imported_names() if (found := _module_of(imported, by_name))}
        - {name}
        for name, module in by_name.items()
    }


def _module_of(imported: str, by_name: Mapping[str, Module]) -> str | None:
    """`vedette.clock.Clock` is defined in the module `vedette.clock`."""
    if imported in by_name:
        return imported
    owner = imported.rpartition(".")[0]
    return owner if owner in by_name else None


def cycles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the strongly connected components with more than one module, largest first."""
    return sorted(
        (sorted(component) for component in _components(graph) if len(component) > 1),
        key=lambda component: (-len(component), component),
    )


def _components(graph: Mapping[str, set[str]]) -> Iterable[set[str]]:
    """Kosaraju's algorithm: order by depth-first search, then search the reversed graph in that order."""
    order: list[str] = []
    seen: set[str] = set()
    for start in graph:
        _search(start, graph, seen, order)
    reversed_graph: dict[str, set[str]] = {name: set() for name in graph}
    for name, imported in graph.items():
        for other in imported:
            reversed_graph[other].add(name)
    seen.clear()
    for start in reversed(order):
        found: list[str] = []
        _search(start, reversed_graph, seen, found)
        if found:
            yield set(found)


def _search(start: str, graph: Mapping[str, set[str]], seen: set[str], finished: list[str]) -> None:
    """Append the modules reachable from `start` to `finished`, in the order in which the search leaves them."""
    if start in seen:
        return
    seen.add(start)
    stack = [(start, iter(sorted(graph[start])))]
    while stack:
        name, rest = stack[-1]
        for other in rest:
            if other not in seen:
                seen.add(other)
                stack.append((other, iter(sorted(graph[other]))))
                break
        else:
            stack.pop()
            finished.append(name)
