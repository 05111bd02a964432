"""Completion in the shell: keywords, types after a colon, attributes after a dot, bound names, dot-commands."""

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
    """The names that can be completed now."""

    schema: Schema
    bindings: tuple[str, ...] = ()
    databases: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()


def completions(before: str, context: CompletionContext) -> tuple[str, list[str]]:
    """Return the partial word at the end of `before` and its completions."""
    if before.lstrip().startswith("."):
        command, space, typed = before.lstrip().partition(" ")
        if not space:
            return command, _matching(command, context.commands)
        if command == ".use":
            return typed, _matching(typed, context.databases)
        if command == ".types":
            return typed, _matching(typed, _user_types(context.schema))
    for pattern, choices in _CONTEXTS:
        found = pattern.search(before)
        if found is not None:
            typed = found[found.lastindex or 0]
            return typed, _matching(typed, choices(before, found, context))
    typed = found[1] if (found := _OPEN_WORD.search(before)) else ""
    return typed, _matching(typed, _words(before, context)) if typed else []


def _matching(typed: str, choices: Iterable[str]) -> list[str]:
    lowered = typed.lower()
    return sorted({each for each in choices if each.lower().startswith(lowered)}, key=str.lower)


def _attributes(before: str, found: re.Match[str], context: CompletionContext) -> Iterator[str]:
    """Yield the attributes of the variable's type, or of all types if it is not known."""
    bound = dict(_BOUND.findall(before))
    yield from ("id", "_type")
    yield from _attributes_of(bound.get(found[1]), context.schema)


def _values(_before: str, found: re.Match[str], context: CompletionContext) -> Iterable[str]:
    return _attributes_of(found[1], context.schema)


def _attributes_of(name: str | None, schema: Schema) -> Iterator[str]:
    holders: dict[str, NodeType | EdgeType] = {**schema.nodes, **schema.edges}
    chosen = [holders[name]] if name in holders else [h for h in holders.values() if not h.is_layer0]
    for holder in chosen:
        yield from holder.attributes


def _types(before: str, _found: re.Match[str], context: CompletionContext) -> Iterable[str]:
    scalars = ("String", "Int", "Float", "Bool", "Timestamp", "Duration", "ID", "any")
    declares = before.lstrip().partition(" ")[0].upper() in DECLARATION_KEYWORDS
    return (*context.schema.nodes, *((*context.schema.aliases, *scalars) if declares else ()))


def _bindings(_before: str, _found: re.Match[str], context: CompletionContext) -> Iterable[str]:
    return context.bindings


def _user_types(schema: Schema) -> Iterator[str]:
    yield from (name for name in (*schema.nodes, *schema.edges) if not name.startswith("_"))


def _words(before: str, context: CompletionContext) -> Iterator[str]:
    yield from KEYWORDS
    yield from (word.lower() for word in DECLARATION_KEYWORDS)
    yield from (f"{name}(" for name in (*context.schema.edges, *(f.name for f in FUNCTIONS.values())))
    yield from (variable for variable, _ in _BOUND.findall(before))


_Choices = Callable[[str, re.Match[str], CompletionContext], Iterable[str]]
_CONTEXTS: tuple[tuple[re.Pattern[str], _Choices], ...] = (
    (_REFERENCE, _bindings),
    (_AFTER_POINT, _attributes),
    (_IN_VALUES, _values),
    (_AFTER_COLON, _types),
)
"""Patterns of the text before the cursor, and the names to offer. The first match applies."""


class ShellCompleter(Completer):
    def __init__(self, context: Callable[[], CompletionContext]) -> None:
        self._context = context

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:  # noqa: ARG002 - required by prompt_toolkit
        typed, found = completions(document.text_before_cursor, self._context())
        for each in found:
            yield Completion(each, start_position=-len(typed))
