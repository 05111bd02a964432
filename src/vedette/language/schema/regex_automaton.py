"""Match a regular expression in time linear in the text, whatever the pattern.

Theory of operation. The tree of `regex_parser.py` becomes a nondeterministic automaton: numbered states, each with one
character test or with moves that read no character. Matching a text builds a deterministic automaton step by step: a
state of it is the set of nondeterministic states that a text can reach, and it caches the following state for every
character seen. The cache is bounded; when it is full, it is emptied and built again.

Why not `google-re2`: it reads another dialect. ASCII `\\w`, `a{,2}` as literal text and POSIX classes would change the
meaning of stored patterns, and a pattern that RE2 rejects would keep a database closed. It was also slower where it
counts: 4.0-6.5 µs against 0.3-1.2 µs for a date, a slug or an IBAN (google-re2 1.1.20251105, Python 3.11). See
docs/design/decisions/0007-own-regular-expression-matcher.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from vedette.language.schema.regex_parser import (
    Alternation,
    Anchor,
    CharacterClass,
    CharacterTest,
    Regex,
    RegexError,
    Repeat,
    Sequence,
    parse_regex,
)

__all__ = ["MAX_TEXT_CHARACTERS", "RegexAutomaton", "compile_regex"]

MAX_TEXT_CHARACTERS = 16_384
"""Longer texts do not match. With the limit on states this bounds the work for one value."""
_MAX_STATES = 1_000
_MAX_BUILD_STEPS = 5_000
"""Bounds the time to build the automaton. Repeating an empty group adds no states, but takes steps."""
_MAX_CACHED_TRANSITIONS = 20_000
"""Cached characters of all states together; past this the cache is emptied."""


def compile_regex(pattern: str) -> RegexAutomaton:
    """Compile a pattern; raises RegexError. A pattern without an anchor must match the whole text."""
    tree = parse_regex(pattern)
    anything = Repeat(CharacterClass(lambda _: True), 0, None)
    return RegexAutomaton(pattern, Sequence((anything, tree, anything)) if _has_anchor(tree) else tree)


def _has_anchor(tree: Regex) -> bool:
    match tree:
        case Anchor():
            return True
        case CharacterClass():
            return False
        case Repeat():
            return _has_anchor(tree.item)
        case _:
            return any(_has_anchor(item) for item in tree.items)


@dataclass(slots=True)
class _NfaState:
    """A state with a character test and one follower, or with moves that read no character.

    The moves of an anchor are allowed only at the start or the end of the text.
    """

    test: CharacterTest | None = None
    anchor: Anchor | None = None
    followers: tuple[int, ...] = ()


class _DfaState(dict[str, "_DfaState"]):
    """A set of nondeterministic states. As a mapping: the following state, by character."""

    __slots__ = ("accepts", "matcher", "states")

    def __init__(self, matcher: RegexAutomaton, states: frozenset[int], accepts: bool) -> None:
        super().__init__()
        self.matcher = matcher
        self.states = states
        self.accepts = accepts

    def __missing__(self, character: str) -> _DfaState:
        return self.matcher.step(self, character)


class RegexAutomaton:
    """A compiled pattern."""

    __slots__ = ("_begin", "_known", "_remembered", "_start", "_states", "_steps", "pattern")

    def __init__(self, pattern: str, tree: Regex) -> None:
        self.pattern = pattern
        self._states: list[_NfaState] = [_NfaState()]  # state 0 accepts
        self._steps = 0
        self._start = self._build(tree, 0)
        self._reset_cache()

    def matches(self, text: str) -> bool:
        state = self._begin
        for character in text:
            state = state[character]
        return state.accepts

    # --- building -----------------------------------------------------------------------------------------------

    def _add(self, state: _NfaState) -> int:
        self._states.append(state)
        return len(self._states) - 1

    def _build(self, tree: Regex, after: int) -> int:
        """Add the states of the tree, which lead to the state `after`; return the first state."""
        self._steps += 1
        if len(self._states) > _MAX_STATES or self._steps > _MAX_BUILD_STEPS:
            raise RegexError(f"the pattern needs more than {_MAX_STATES} states; repeat less, or use length")
        match tree:
            case CharacterClass():
                return self._add(_NfaState(test=tree.test, followers=(after,)))
            case Anchor():
                return self._add(_NfaState(anchor=tree, followers=(after,)))
            case Sequence():
                for item in reversed(tree.items):
                    after = self._build(item, after)
                return after
            case Alternation():
                return self._add(_NfaState(followers=tuple(self._build(item, after) for item in tree.items)))
            case Repeat():
                return self._build_repeat(tree, after)

    def _build_repeat(self, tree: Repeat, after: int) -> int:
        if tree.high is None:
            loop = self._add(_NfaState())
            self._states[loop].followers = (self._build(tree.item, loop), after)
            begin = loop
        else:
            begin = after
            for _ in range(tree.high - tree.low):
                begin = self._add(_NfaState(followers=(self._build(tree.item, begin), after)))
        for _ in range(tree.low):
            begin = self._build(tree.item, begin)
        return begin

    # --- running ------------------------------------------------------------------------------------------------

    def step(self, state: _DfaState, character: str) -> _DfaState:
        """Compute and cache the state that follows `state` for the character."""
        moved = []
        for number in state.states:
            nfa_state = self._states[number]
            if nfa_state.test is not None and nfa_state.test(character):
                moved.append(nfa_state.followers[0])
        following = self._dfa_state(moved, begin=False)
        self._remembered += 1
        if self._remembered > _MAX_CACHED_TRANSITIONS:
            self._reset_cache()
        else:
            state[character] = following
        return following

    def _reset_cache(self) -> None:
        self._known: dict[frozenset[int], _DfaState] = {}
        self._remembered = 0
        self._begin = self._dfa_state([self._start], begin=True)

    def _dfa_state(self, seeds: list[int], *, begin: bool) -> _DfaState:
        states = self._closure(seeds, begin=begin, end=False)
        known = None if begin else self._known.get(states)
        if known is None:
            accepts = 0 in self._closure(states, begin=begin, end=True)
            known = _DfaState(self, states, accepts)
            if not begin:
                self._known[states] = known
        return known

    def _closure(self, seeds: Iterable[int], *, begin: bool, end: bool) -> frozenset[int]:
        """Return the states that are reached without reading a character; `begin` and `end` allow the anchors."""
        found: set[int] = set()
        waiting = list(seeds)
        while waiting:
            number = waiting.pop()
            if number in found:
                continue
            found.add(number)
            state = self._states[number]
            closed = state.anchor is not None and not (end if state.anchor.end else begin)
            if state.test is None and not closed:
                waiting.extend(state.followers)
        return frozenset(found)
