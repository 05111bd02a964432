"""Source code: each function, class and method starts a section.

Python has a scanner of its own (`python_sections`). In other languages a regular expression finds the lines at the left
margin that start a definition.

Parsing a Python file with `ast` gives the same sections (`test_source_code.py` compares the two) but costs five times
as much CPU; it was the most expensive step of ingesting a source file. The scanner finds the lines that start a
definition, with their indentation, and skips the contents of strings. It also works on files that are not valid Python.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from vedette.search.content_type import CODE_LANGUAGES
from vedette.search.document import Document, Section, split_lines, truncate

__all__ = ["extract_code", "python_sections"]

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
"""By language: how a line at the left margin starts a definition."""

# An unclosed long string extends to the end of the file, a short one to the end of its line, so the scan reads every
# character once.
_PYTHON_TOKEN = re.compile(
    r"""
    \#[^\n]*
    | (?P<long>
        "{3} [^"\\]*+ (?: (?: \\. | "(?!"") ) [^"\\]*+ )*+ (?: "{3} | \\?\Z )
        | '{3} [^'\\]*+ (?: (?: \\. | '(?!'') ) [^'\\]*+ )*+ (?: '{3} | \\?\Z )
    )
    | "[^"\\\n]*+ (?: \\. [^"\\\n]*+ )*+ (?: " | (?=\n) | \\?\Z )
    | '[^'\\\n]*+ (?: \\. [^'\\\n]*+ )*+ (?: ' | (?=\n) | \\?\Z )
    """,
    re.VERBOSE | re.DOTALL,
)
_PYTHON_LINE = re.compile(
    r"""
    ^(?P<indent>[ \t]*)
    (?:
        (?:async[ \t]+)? (?P<word>def|class) [ \t]+ (?P<name>\w+)
        | (?P<decorator>@)
        | (?:async[ \t]+)? (?:if|elif|else|try|except|finally|with|for|while|match|case)\b
    )
    """,
    re.VERBOSE | re.MULTILINE,
)


def extract_code(path: str, text: str) -> Document:
    language = CODE_LANGUAGES.get(PurePosixPath(path).suffix.lower(), "braces")
    lines = split_lines(text)
    sections = (
        python_sections("\n".join(lines))
        if language == "python"
        else _sections_by_regex(lines, _DEFINITION_PATTERNS[language])
    )
    return Document.from_lines(lines, list(sections))


def _sections_by_regex(lines: list[str], definition: re.Pattern[str]) -> Iterator[Section]:
    for index, line in enumerate(lines):
        match = definition.match(line)
        if match is not None:
            names = match.groupdict()
            name = (names["name"] or names.get("other") or "").strip()
            yield Section(start=index, title=truncate(name))


@dataclass(slots=True)
class _Block:
    """A block whose lines are being scanned: all following lines with a larger indentation belong to it."""

    indent: int
    prefix: str | None
    """Prefix of the names defined in it, such as `Store.`. None in functions and branches, whose definitions start no
    section."""
    body_indent: int | None = None
    """Indentation of the definitions of a class; None until the first one."""


def python_sections(text: str) -> Iterator[Section]:
    """Yield the sections in line order. Lines of `text` end with a line feed.

    A section starts at the first decorator of its definition.
    """
    open_blocks = [_Block(-1, "", body_indent=0)]
    first_decorators: dict[int, int] = {}
    """By indentation: line of the first decorator of the next definition."""
    text = _without_long_strings(text)
    line = position = 0
    for match in _PYTHON_LINE.finditer(text):
        line += text.count("\n", position, match.start())
        position = match.start()
        indent = len(match["indent"].expandtabs())
        while open_blocks[-1].indent >= indent:
            open_blocks.pop()
        if match["decorator"]:
            first_decorators.setdefault(indent, line)
            continue
        block = open_blocks[-1]
        keyword, name = match["word"], match["name"]
        starts_section = name is not None and block.prefix is not None and block.body_indent in (None, indent)
        if starts_section:
            block.body_indent = indent
            start = first_decorators.get(indent, line)
            yield Section(start=start, title=f"{keyword} {block.prefix}{truncate(name)}")
        if name is not None:
            first_decorators.pop(indent, None)
        is_class = starts_section and keyword == "class"
        open_blocks.append(_Block(indent, f"{truncate(f'{block.prefix}{name}')}." if is_class else None))


def _without_long_strings(text: str) -> str:
    """Replace each triple-quoted string by an empty string and its line feeds."""
    pieces, position = [], 0
    for token in _PYTHON_TOKEN.finditer(text):
        if token.lastgroup == "long":
            pieces += [text[position : token.start()], '""', "\n" * token[0].count("\n")]
            position = token.end()
    return "".join([*pieces, text[position:]])
