"""Globs, many at once, in a time that grows with the length of the path and with nothing else.

All globs are one automaton. The places in them where a path may be after some characters are a state, and what a state
does with a character is worked out when it first comes and remembered: a step is one lookup in a dictionary. No glob is
tried twice at a place, so that none takes long, however many stars it has.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias

__all__ = ["Glob", "Globs"]

MOST_REMEMBERED = 20_000
"""Steps of all states; then everything is forgotten and worked out anew."""


class _Wild(Enum):
    STAR = auto()
    """`*`: any characters of one name."""
    ANY = auto()
    """`**`: any characters."""
    FOLDERS = auto()
    """`**/`: any folders, or none. After their first character only a slash ends them: that is the next token."""
    FOLDERS_INSIDE = auto()
    ONE = auto()
    """`?`: a character that is no slash."""


_Token: TypeAlias = str | re.Pattern[str] | _Wild
_TOKENS: Sequence[tuple[str, tuple[_Token, ...]]] = (
    ("**/", (_Wild.FOLDERS, _Wild.FOLDERS_INSIDE)),
    ("**", (_Wild.ANY,)),
    ("*", (_Wild.STAR,)),
    ("?", (_Wild.ONE,)),
)


@dataclass(frozen=True, slots=True)
class Glob:
    text: str
    below: bool
    """Whether what is below a match matches too."""


class Globs:
    """What any of them matches, from the first character of a path to the last."""

    _folder: tuple[str, _State]
    """That was last asked for, with its slash, and the state behind it."""

    def __init__(self, globs: Iterable[Glob]) -> None:
        self._globs = [(_tokens(glob.text), glob.below) for glob in globs]
        self._forget()

    def match(self, path: str) -> bool:
        end = path.rfind("/") + 1
        folder, state = self._folder  # files come folder by folder
        if path[:end] != folder:
            state = self._start
            for character in path[:end]:
                state = state[character]
            self._folder = path[:end], state
        for character in path[end:]:
            state = state[character]
        return state.accepts

    def _forget(self) -> None:
        self._states: dict[frozenset[_Place], _State] = {}
        self._remembered = 0
        self._start = self._state(
            {place for number in range(len(self._globs)) for place in self._at(number, 0)}
        )
        self._folder = ("", self._start)

    def _state(self, places: set[_Place]) -> _State:
        key = frozenset(places)
        if key not in self._states:
            accepts = any(token >= len(self._globs[number][0]) for number, token in key)
            self._states[key] = _State(self, key, accepts)
        return self._states[key]

    def after(self, places: frozenset[_Place], character: str) -> _State:
        if self._remembered >= MOST_REMEMBERED:
            self._forget()
        self._remembered += 1
        return self._state({after for place in places for after in self._step(*place, character)})

    def _at(self, number: int, token: int) -> Iterable[_Place]:
        """This place, and those that are reached from it with no character."""
        tokens = self._globs[number][0]
        yield number, token
        while token < len(tokens) and tokens[token] in (_Wild.STAR, _Wild.ANY, _Wild.FOLDERS):
            token += 2 if tokens[token] is _Wild.FOLDERS else 1
            yield number, token

    def _step(self, number: int, token: int, character: str) -> Iterable[_Place]:
        tokens, below = self._globs[number]
        if token >= len(tokens):  # matched: below it, one place further on, all is taken
            return [(number, len(tokens) + 1)] if token > len(tokens) or (below and character == "/") else []
        slash = character == "/"
        match tokens[token]:
            case _Wild.ANY:
                return self._at(number, token)
            case _Wild.STAR:
                return [] if slash else self._at(number, token)
            case _Wild.ONE:
                return [] if slash else self._at(number, token + 1)
            case _Wild.FOLDERS:
                return [(number, token + 1), *(self._at(number, token + 2) if slash else ())]
            case _Wild.FOLDERS_INSIDE:
                return [(number, token), *(self._at(number, token + 1) if slash else ())]
            case str() as literal:
                return self._at(number, token + 1) if character == literal else []
            case set_:
                return self._at(number, token + 1) if not slash and set_.match(character) else []


_Place: TypeAlias = tuple[int, int]
"""Which glob, and before which of its tokens; behind the last it matches."""


class _State(dict[str, "_State"]):
    """Character ▸ the next state."""

    __slots__ = ("_globs", "_places", "accepts")

    def __init__(self, globs: Globs, places: frozenset[_Place], accepts: bool) -> None:
        super().__init__()
        self._globs, self._places, self.accepts = globs, places, accepts

    def __missing__(self, character: str) -> _State:
        state = self[character] = self._globs.after(self._places, character)
        return state


def _tokens(glob: str) -> list[_Token]:
    start: list[_Token] = [] if glob.startswith("/") else [_Wild.FOLDERS, _Wild.FOLDERS_INSIDE]
    glob, position, tokens = glob.strip("/"), 0, start
    while position < len(glob):
        for text, meaning in _TOKENS:
            if glob.startswith(text, position):
                tokens.extend(meaning)
                position += len(text)
                break
        else:
            token, position = _one(glob, position)
            tokens.append(token)
    return tokens


def _one(glob: str, position: int) -> tuple[_Token, int]:
    """A character, or a set of them in brackets; a bracket that is not closed stands for itself."""
    end = glob.find("]", position + 2) if glob[position] == "[" else -1
    if end < 0:
        return glob[position], position + 1
    inner = glob[position + 1 : end]
    negated = inner[0] in "!^" and len(inner) > 1
    escaped = re.sub(r"([\\\[\]&~|^])", r"\\\1", inner[1:] if negated else inner)
    try:
        return re.compile(f"[{'^' if negated else ''}{escaped}]", re.DOTALL), end + 1
    except re.error:  # such as [z-a]
        return glob[position], position + 1
