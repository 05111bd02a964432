"""Read case files: texts whose expected errors are written at the end of their lines."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tests.support.paths import DATA
from vedette.language.parser import parse_declarations
from vedette.language.schema.extend import extend_schema
from vedette.language.schema.layer0 import layer0_schema
from vedette.language.schema.model import Schema

CASES = DATA / "schema"


@dataclass(frozen=True, slots=True)
class Case:
    title: str
    steps: tuple[str, ...]
    """Ontologies, each defined on top of those before it."""

    def expected(self) -> list[tuple[int, str, str]]:
        """Line, code and part of the message of every error of the last step."""
        return [
            (number, code, text.strip())
            for number, line in enumerate(self.steps[-1].splitlines(), start=1)
            for code, text in re.findall(r"--! (E\d{4})([^!]*?)(?=--!|$)", line)
        ]


def read_cases(name: str) -> list[Case]:
    return read_case_file(CASES / name)


def read_case_file(path: Path) -> list[Case]:
    found = []
    for block in re.split(r"^=== ", path.read_text(), flags=re.MULTILINE)[1:]:
        title, _, body = block.partition("\n")
        found.append(Case(title, tuple(re.split(r"^==>\n", body, flags=re.MULTILINE))))
    assert found, f"{path} has no case"
    return found


def define(schema: Schema, text: str) -> Schema:
    return extend_schema(schema, parse_declarations(text), text)


def define_all(*texts: str) -> Schema:
    schema = layer0_schema()
    for text in texts:
        schema = define(schema, text)
    return schema
