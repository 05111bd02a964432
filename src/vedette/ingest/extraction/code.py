"""Source code: a part begins at each function, class and method. Python is parsed; other languages by their look."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from vedette.ingest.detection import CODE_LANGUAGES
from vedette.ingest.document import Document, Part
from vedette.ingest.extraction.plain import lines_of

__all__ = ["extract_code"]

_STARTS: Mapping[str, re.Pattern[str]] = {
    "python": re.compile(r"(?:async\s+def|def|class)\s+(?P<name>\w+)"),
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
        r"(?:[A-Za-z_][\w<>,:*&\[\]\s]*?[\s*&])?(?P<name>~?[A-Za-z_][\w:]*)\s*(?:\([^;]*|\{)\s*\{?$"
    ),
}
"""By language: what a line at the left margin looks like when something begins there."""


def extract_code(path: str, text: str) -> Document:
    language = CODE_LANGUAGES.get(PurePosixPath(path).suffix.lower(), "braces")
    lines = lines_of(text)
    parts = list(_parsed_python(text)) if language == "python" else []
    return Document.of_lines(lines, parts or list(_by_look(lines, _STARTS[language])))


def _by_look(lines: list[str], start: re.Pattern[str]) -> Iterator[Part]:
    for index, line in enumerate(lines):
        found = start.match(line)
        if found is not None:
            names = found.groupdict()
            yield Part(start=index, title=(names["name"] or names.get("other") or "").strip())


def _parsed_python(text: str) -> Iterator[Part]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the file, not about us
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    yield from sorted(_definitions(tree.body, ""), key=lambda part: part.start)


def _definitions(body: list[ast.stmt], owner: str) -> Iterator[Part]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            word = "class" if isinstance(node, ast.ClassDef) else "def"
            yield Part(start=first - 1, title=f"{word} {owner}{node.name}")
            if isinstance(node, ast.ClassDef):
                yield from _definitions(node.body, f"{owner}{node.name}.")
