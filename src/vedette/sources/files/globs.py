"""Match a path against many globs at once, in time proportional to the length of the path.

All globs form one automaton. A state is the set of positions in the globs after some characters. Transitions are
computed on first use and cached, so a step is one dictionary lookup, and no glob backtracks, regardless of its number
of stars.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias

__all__ = ["Glob", "Globs"]

MOST_REMEMBERED = 20_000
"""Maximum number of cached transitions of all states; above it the cache is cleared."""


class _Wild(Enum):
    STAR = auto()
    """`*`: any characters of one name."""
    ANY = auto()
    """`**`: any characters."""
    FOLDERS = auto()
    """`**/`: any number of folders. After the first character only a slash ends it, which is the next token."""
    FOLDERS_INSIDE = auto()
    ONE = auto()
    """`?`: any character except a slash."""


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
    """True if paths below a match match too."""


class Globs:
    """Matches a whole path against any of the globs."""

    _folder: tuple[str, _State]
    """The last folder queried, with its slash, and the state after it."""

    def __init__(self, globs: Iterable[Glob]) -> None:
        self._globs = [(_tokens(glob.text), glob.below) for glob in globs]
        self._forget()

    def match(self, path: str) -> bool:
        end = path.rfind("/") + 1
        folder, state = self._folder  # files arrive grouped by folder
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
        """Return this position and all positions that are reachable from it without a character."""
        tokens = self._globs[number][0]
        yield number, token
        while token < len(tokens) and tokens[token] in (_Wild.STAR, _Wild.ANY, _Wild.FOLDERS):
            token += 2 if tokens[token] is _Wild.FOLDERS else 1
            yield number, token

    def _step(self, number: int, token: int, character: str) -> Iterable[_Place]:
        tokens, below = self._globs[number]
        if token >= len(tokens):  # matched: everything below it matches, one position further
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
"""Index of a glob and of its next token. The glob matches after its last token."""


class _State(dict[str, "_State"]):
    """Next state by character."""

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
    """Parse a character or a set in brackets. An unclosed bracket is a literal."""
    end = glob.find("]", position + 2) if glob[position] == "[" else -1
    if end < 0:
        return glob[position], position + 1
    inner = glob[position + 1 : end]
    negated = inner[0] in "!^" and len(inner) > 1
    escaped = re.sub(r"([\\\[\]&~|^])", r"\\\1", inner[1:] if negated else inner)
    try:
        return re.compile(f"[{'^' if negated else ''}{escaped}]", re.DOTALL), end + 1
    except re.error:  # for example [z-a]
        return glob[position], position + 1
