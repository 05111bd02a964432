"""The cases of tests/data/language: accepted texts, and rejected texts with code and position of every error."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.support.paths import DATA
from vedette.errors import VedetteError
from vedette.language.diagnostics import Diagnostic

__all__ = [
    "Case",
    "accepted_ontologies",
    "accepted_options",
    "accepted_scripts",
    "expressions",
    "places",
    "rejected_ontologies",
    "rejected_scripts",
]

FOLDER = DATA / "language"
_CASE = re.compile(r"^--# (.*)\n((?:--@ .*\n)*)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """`marks` are the texts after `--@`: `E1001 1:7` or `beyond grammar`."""

    file: str
    name: str
    text: str
    marks: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.file}: {self.name}"

    @property
    def places(self) -> tuple[str, ...]:
        return tuple(mark for mark in self.marks if mark.startswith("E"))

    @property
    def fits_grammar(self) -> bool:
        return "beyond grammar" in self.marks


def _load(name: str) -> list[Case]:
    with (FOLDER / f"{name}.mew").open(encoding="utf-8", newline="") as file:
        source = file.read()
    heads = list(_CASE.finditer(source))
    ends = [head.start() for head in heads[1:]] + [len(source)]
    return [
        Case(
            file=name,
            name=head[1],
            text=source[head.end() : end].rstrip("\n"),
            marks=tuple(line.removeprefix("--@ ") for line in head[2].splitlines()),
        )
        for head, end in zip(heads, ends, strict=True)
    ]


def accepted_scripts() -> list[Case]:
    return _load("statements") + _load("examples")


def accepted_ontologies() -> list[Case]:
    return _load("ontologies") + _load("examples_ontology")


def accepted_options() -> list[Case]:
    return _load("options")


def rejected_scripts() -> list[Case]:
    return _load("rejected")


def rejected_ontologies() -> list[Case]:
    return _load("rejected_ontology")


def expressions() -> list[tuple[str, str]]:
    """The text of an expression and its tree."""
    lines = (FOLDER / "expressions.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.split("▸") for line in lines if "▸" in line]
    return [(text.strip(), tree.strip()) for text, tree in pairs]


def places(error: VedetteError) -> tuple[str, ...]:
    """Return code and position, such as `E1001 1:7`, of every diagnostic of an error."""
    found = []
    for diagnostic in error.diagnostics:
        assert isinstance(diagnostic, Diagnostic)
        found.append(f"{diagnostic.code} {diagnostic.line}:{diagnostic.column}")
    return tuple(found)
