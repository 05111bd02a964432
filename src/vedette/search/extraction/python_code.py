"""Find the classes, functions and methods of a Python file without its syntax tree.

Parsing the file with `ast` gives the same result (`test_python_code.py` compares the two) but costs five times as
much CPU; it was the most expensive step of ingesting a source file. This module finds the lines that start a
definition, with their indentation, and skips the contents of strings. It also works on files that are not valid
Python.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from vedette.search.document import Section, truncate

__all__ = ["python_sections"]

# An unclosed long string extends to the end of the file, a short one to the end of its line, so every character is read
# once.
_TOKEN = re.compile(
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
_LINE = re.compile(
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


@dataclass(slots=True)
class _Block:
    """An open block: everything indented further belongs to it."""

    indent: int
    names: str | None
    """Prefix for names inside it; None inside functions and branches, whose definitions are ignored."""
    body: int | None = None
    """Indentation of the class's own definitions."""


def python_sections(text: str) -> Iterator[Section]:
    """In line order; `text` has
    between lines. Decorators belong to the decorated definition.
    """
    open_blocks = [_Block(-1, "", body=0)]
    decorated: dict[int, int] = {}
    """Indentation to the line of the first decorator."""
    text = _without_long_strings(text)
    line = position = 0
    for found in _LINE.finditer(text):
        line += text.count("\n", position, found.start())
        position = found.start()
        indent = len(found["indent"].expandtabs())
        while open_blocks[-1].indent >= indent:
            open_blocks.pop()
        if found["decorator"]:
            decorated.setdefault(indent, line)
            continue
        block = open_blocks[-1]
        word, name = found["word"], found["name"]
        counts = name is not None and block.names is not None and block.body in (None, indent)
        if counts:
            block.body = indent
            yield Section(start=decorated.get(indent, line), title=f"{word} {block.names}{truncate(name)}")
        if name is not None:
            decorated.pop(indent, None)
        names = f"{truncate(f'{block.names}{name}')}." if counts and word == "class" else None
        open_blocks.append(_Block(indent, names))


def _without_long_strings(text: str) -> str:
    """Replace long strings by placeholders, keeping the number of lines."""
    pieces, position = [], 0
    for token in _TOKEN.finditer(text):
        if token.lastgroup == "long":
            pieces += [text[position : token.start()], '""', "\n" * token[0].count("\n")]
            position = token.end()
    return "".join([*pieces, text[position:]])
