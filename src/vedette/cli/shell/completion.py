"""What could be meant: keywords, types behind a colon, attributes behind a point, bound names, dot-commands."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from vedette.cli.shell.highlighting import KEYWORDS
from vedette.language.functions.registry import FUNCTIONS
from vedette.language.schema.model import EdgeType, NodeType, Schema
from vedette.language.syntax.grammar import DECLARATION_KEYWORDS

__all__ = ["CompletionContext", "ShellCompleter", "completions"]

_WORD = r"([A-Za-z_][A-Za-z0-9_]*)"
_OPEN_WORD = re.compile(r"([A-Za-z0-9_]*)$")
_AFTER_POINT = re.compile(rf"{_WORD}\.([A-Za-z0-9_]*)$")
_AFTER_COLON = re.compile(r":\s*([A-Za-z0-9_]*)$")
_IN_VALUES = re.compile(rf":\s*{_WORD}\s*\{{(?:[^{{}}]*,)?\s*([A-Za-z0-9_]*)$")
_REFERENCE = re.compile(r"#([A-Za-z0-9_]*)$")
_BOUND = re.compile(rf"\b{_WORD}\s*:\s*{_WORD}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionContext:
    """What there is to choose from at this moment."""

    schema: Schema
    bindings: tuple[str, ...] = ()
    databases: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()


def completions(before: str, words: CompletionContext) -> tuple[str, list[str]]:
    """The word that is being typed at the end of `before`, and what it could become."""
    if before.lstrip().startswith("."):
        command, space, typed = before.lstrip().partition(" ")
        if not space:
            return command, _matching(command, words.commands)
        if command == ".use":
            return typed, _matching(typed, words.databases)
        if command == ".types":
            return typed, _matching(typed, _user_types(words.schema))
    for pattern, choices in _PLACES:
        found = pattern.search(before)
        if found is not None:
            typed = found[found.lastindex or 0]
            return typed, _matching(typed, choices(before, found, words))
    typed = found[1] if (found := _OPEN_WORD.search(before)) else ""
    return typed, _matching(typed, _words(before, words)) if typed else []


def _matching(typed: str, choices: Iterable[str]) -> list[str]:
    lowered = typed.lower()
    return sorted({each for each in choices if each.lower().startswith(lowered)}, key=str.lower)


def _attributes(before: str, found: re.Match[str], words: CompletionContext) -> Iterator[str]:
    """Of the type that the variable was bound to; of all types when that is not known."""
    bound = dict(_BOUND.findall(before))
    yield from ("id", "_type")
    yield from _attributes_of(bound.get(found[1]), words.schema)


def _values(_before: str, found: re.Match[str], words: CompletionContext) -> Iterable[str]:
    return _attributes_of(found[1], words.schema)


def _attributes_of(name: str | None, schema: Schema) -> Iterator[str]:
    holders: dict[str, NodeType | EdgeType] = {**schema.nodes, **schema.edges}
    chosen = [holders[name]] if name in holders else [h for h in holders.values() if not h.is_layer0]
    for holder in chosen:
        yield from holder.attributes


def _types(before: str, _found: re.Match[str], words: CompletionContext) -> Iterable[str]:
    scalars = ("String", "Int", "Float", "Bool", "Timestamp", "Duration", "ID", "any")
    declares = before.lstrip().partition(" ")[0].upper() in DECLARATION_KEYWORDS
    return (*words.schema.nodes, *((*words.schema.aliases, *scalars) if declares else ()))


def _bindings(_before: str, _found: re.Match[str], words: CompletionContext) -> Iterable[str]:
    return words.bindings


def _user_types(schema: Schema) -> Iterator[str]:
    yield from (name for name in (*schema.nodes, *schema.edges) if not name.startswith("_"))


def _words(before: str, words: CompletionContext) -> Iterator[str]:
    yield from KEYWORDS
    yield from (word.lower() for word in DECLARATION_KEYWORDS)
    yield from (f"{name}(" for name in (*words.schema.edges, *(f.name for f in FUNCTIONS.values())))
    yield from (variable for variable, _ in _BOUND.findall(before))


_Choices = Callable[[str, re.Match[str], CompletionContext], Iterable[str]]
_PLACES: tuple[tuple[re.Pattern[str], _Choices], ...] = (
    (_REFERENCE, _bindings),
    (_AFTER_POINT, _attributes),
    (_IN_VALUES, _values),
    (_AFTER_COLON, _types),
)
"""Where a word of a certain kind is expected; the first that fits decides."""


class ShellCompleter(Completer):
    def __init__(self, vocabulary: Callable[[], CompletionContext]) -> None:
        self._vocabulary = vocabulary

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:  # noqa: ARG002 - prompt_toolkit's
        typed, found = completions(document.text_before_cursor, self._vocabulary())
        for each in found:
            yield Completion(each, start_position=-len(typed))
