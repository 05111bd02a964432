"""The parsed source tree: one `Module` per file, with the names that it imports and reads."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

__all__ = ["ROOT", "SOURCE", "Module", "source_modules"]

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "vedette"


@dataclass(frozen=True, kw_only=True)
class Module:
    path: str  # below src/vedette, with slashes: "graph/elements.py"
    text: str

    @property
    def package(self) -> str:
        """The top-level package of the module: "graph"; "" for a module directly in vedette."""
        return self.path.rpartition("/")[0].partition("/")[0]

    @property
    def name(self) -> str:
        """The last part of the dotted name; a package has its folder's name."""
        folder, _, file = self.path.rpartition("/")
        return folder.rpartition("/")[2] if file == "__init__.py" else file.removesuffix(".py")

    @property
    def dotted_name(self) -> str:
        """The name by which the module is imported: "vedette.graph.elements"; a package has its folder's name."""
        return ".".join(
            ["vedette", *self.path.removesuffix(".py").removesuffix("__init__").strip("/").split("/")]
        ).rstrip(".")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, filename=self.path)

    def at(self, line: int, words: str) -> str:
        """Format a finding of a rule."""
        return f"src/vedette/{self.path}:{line}: {words}"

    @cached_property
    def imports(self) -> dict[str, str]:
        """Map each local name to the full name that it imports: {"dt": "datetime", "monotonic": "time.monotonic"}."""
        names: dict[str, str] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    names[alias.asname or alias.name.partition(".")[0]] = (
                        alias.name if alias.asname else alias.name.partition(".")[0]
                    )
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        return names

    def imported_modules(self) -> Iterator[tuple[int, str]]:
        """(line, dotted module name) of every import, also inside functions."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from ((node.lineno, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield node.lineno, node.module or ""

    def imported_names(self) -> Iterator[str]:
        """The full name of everything imported: `from vedette.clock import Clock` is vedette.clock.Clock."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield from (f"{node.module}.{alias.name}" for alias in node.names)

    def uses(self) -> Iterator[tuple[int, str]]:
        """(line, dotted name) of every name that is read, imports resolved:

        `dt.datetime.now` is datetime.datetime.now.
        """
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Attribute | ast.Name):
                name = self.dotted(node)
                if name:
                    yield node.lineno, name

    def dotted(self, node: ast.expr) -> str | None:
        """The full name that an expression reads, or None if the expression is not a chain of attributes."""
        if isinstance(node, ast.Name):
            return self.imports.get(node.id, node.id)
        if isinstance(node, ast.Attribute):
            owner = self.dotted(node.value)
            return f"{owner}.{node.attr}" if owner else None
        return None


def source_modules() -> list[Module]:
    return [
        Module(path=path.relative_to(SOURCE).as_posix(), text=path.read_text())
        for path in sorted(SOURCE.rglob("*.py"))
        if "_compiled" not in path.parts
    ]
