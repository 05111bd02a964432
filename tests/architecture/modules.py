"""The source tree as the shape rules see it: one parsed `Module` per file, and what each one imports and uses."""

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
        """The package below vedette that it belongs to: "graph"; "" for a module of vedette itself."""
        return self.path.rpartition("/")[0].partition("/")[0]

    @property
    def name(self) -> str:
        """The last part of its dotted name; that of a package is the folder's."""
        folder, _, file = self.path.rpartition("/")
        return folder.rpartition("/")[2] if file == "__init__.py" else file.removesuffix(".py")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, filename=self.path)

    def at(self, line: int, words: str) -> str:
        """A finding, as every rule gives it."""
        return f"src/vedette/{self.path}:{line}: {words}"

    @cached_property
    def imports(self) -> dict[str, str]:
        """What each imported local name stands for: {"dt": "datetime", "monotonic": "time.monotonic"}."""
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
        """(line, dotted name) of every import, wherever in the file it stands."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from ((node.lineno, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield node.lineno, node.module or ""

    def uses(self) -> Iterator[tuple[int, str]]:
        """(line, dotted name) of everything read, imports resolved: `dt.datetime.now` is datetime.datetime.now."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Attribute | ast.Name):
                name = self.dotted(node)
                if name:
                    yield node.lineno, name

    def dotted(self, node: ast.expr) -> str | None:
        """The full name that an expression reads, None when it is more than names and dots."""
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
    ]
