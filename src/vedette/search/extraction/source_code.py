"""Source code: each function, class and method starts a section, found by regular expressions in most languages."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from vedette.search.content_type import CODE_LANGUAGES
from vedette.search.document import Document, Section, truncate
from vedette.search.extraction.python_code import python_sections
from vedette.search.extraction.text import lines_of

__all__ = ["extract_code"]

_DEFINITION_PATTERNS: Mapping[str, re.Pattern[str]] = {
    "javascript": re.compile(
        r"(?:export\s+)?(?:default\s+)?(?:abstract\s+)?"
        r"(?:(?:async\s+)?function\*?|class|interface|type|enum|const|let|var)\s+(?P<name>[\w$]+)"
    ),
    "go": re.compile(r"(?:func(?:\s*\([^)]*\))?|type)\s+(?P<name>\w+)"),
    "rust": re.compile(
        r"(?:pub(?:\([^)]*\))?\s+)?(?:async\s+|unsafe\s+|const\s+)*(?:fn|struct|enum|trait|mod|impl(?:<[^>]*>)?)"
        r"\s+(?P<name>[\w:<>]+)"
    ),
    "ruby": re.compile(r"\s*(?:def|class|module)\s+(?P<name>[\w.:?!=]+)"),
    "shell": re.compile(r"(?:function\s+)?(?P<name>[\w-]+)\s*\(\)\s*\{?|function\s+(?P<other>[\w-]+)"),
    "sql": re.compile(r"(?i)(?:create|alter|insert|select|update|delete|with)\b(?P<name>[^(;]{0,60})"),
    "braces": re.compile(
        r"(?:[A-Za-z_][\w<>,:*&\[\]\s]*?[\s*&])?(?P<name>~?[A-Za-z_][\w:]*)\s*(?:\([^;]*+|\{\s*\{?)$"
    ),
}
"""By language: patterns of a line at the left margin that starts a definition."""


def extract_code(path: str, text: str) -> Document:
    language = CODE_LANGUAGES.get(PurePosixPath(path).suffix.lower(), "braces")
    lines = lines_of(text)
    parts = (
        python_sections("\n".join(lines))
        if language == "python"
        else _sections_by_regex(lines, _DEFINITION_PATTERNS[language])
    )
    return Document.from_lines(lines, list(parts))


def _sections_by_regex(lines: list[str], start: re.Pattern[str]) -> Iterator[Section]:
    for index, line in enumerate(lines):
        found = start.match(line)
        if found is not None:
            names = found.groupdict()
            name = (names["name"] or names.get("other") or "").strip()
            yield Section(start=index, title=truncate(name))
