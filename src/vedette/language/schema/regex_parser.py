"""Parse the regular expressions of `[match: "…"]`.

The syntax is that of Python's `re` without look-around, backreferences, flags and word boundaries
(docs/reference/language/ontology.md#attributes). Without them `regex_automaton.py` needs time linear in the text, which
matters because both pattern and text come from users.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

__all__ = [
    "Alternation",
    "Anchor",
    "CharacterClass",
    "CharacterTest",
    "Regex",
    "RegexError",
    "Repeat",
    "Sequence",
    "parse_regex",
]

CharacterTest: TypeAlias = Callable[[str], bool]
_MAX_GROUP_DEPTH = 50
"""Nested groups; the parser recurses once per group."""
_MAX_REPEATS = 1_000
"""The largest number in `{n,m}`; every repetition adds states to the automaton."""


class RegexError(ValueError):
    """The pattern is invalid or not supported. The text names the problem and the character, counted from 1."""


@dataclass(frozen=True, slots=True)
class CharacterClass:
    """One character that satisfies the test."""

    test: CharacterTest


@dataclass(frozen=True, slots=True)
class Anchor:
    """`^` or `$`: the start or the end of the whole text."""

    end: bool


@dataclass(frozen=True, slots=True)
class Sequence:
    items: tuple[Regex, ...]


@dataclass(frozen=True, slots=True)
class Alternation:
    items: tuple[Regex, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    item: Regex
    low: int
    high: int | None


Regex: TypeAlias = CharacterClass | Anchor | Sequence | Alternation | Repeat


def parse_regex(pattern: str) -> Regex:
    """Return the tree of a pattern; raises RegexError."""
    parser = _Parser(pattern)
    tree = parser.alternation(0)
    if parser.position < len(pattern):
        raise parser.error("a closing parenthesis without an opening one")
    return tree


_CATEGORIES: dict[str, CharacterTest] = {
    "d": str.isdecimal,
    "D": lambda character: not character.isdecimal(),
    "w": lambda character: character.isalnum() or character == "_",
    "W": lambda character: not (character.isalnum() or character == "_"),
    "s": str.isspace,
    "S": lambda character: not character.isspace(),
}
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v"}
_HEX_SIZES = {"x": 2, "u": 4}
_QUANTIFIERS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}


class _Parser:
    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.position = 0

    def error(self, message: str) -> RegexError:
        return RegexError(f"{message} (character {self.position + 1} of the pattern)")

    def peek(self) -> str:
        return self.pattern[self.position : self.position + 1]

    def accept(self, text: str) -> bool:
        found = self.pattern.startswith(text, self.position)
        self.position += len(text) if found else 0
        return found

    def advance(self) -> str:
        character = self.peek()
        if not character:
            raise self.error("the pattern ends too early")
        self.position += 1
        return character

    # --- structure ----------------------------------------------------------------------------------------------

    def alternation(self, depth: int) -> Regex:
        if depth > _MAX_GROUP_DEPTH:
            raise self.error(f"groups are nested deeper than {_MAX_GROUP_DEPTH}")
        branches = [self.sequence(depth)]
        while self.accept("|"):
            branches.append(self.sequence(depth))
        return branches[0] if len(branches) == 1 else Alternation(tuple(branches))

    def sequence(self, depth: int) -> Regex:
        items: list[Regex] = []
        while self.peek() not in ("", "|", ")"):
            items.append(self.quantified(self.atom(depth)))
        return items[0] if len(items) == 1 else Sequence(tuple(items))

    def quantified(self, item: Regex) -> Regex:
        bounds = self.quantifier()
        if bounds is None:
            return item
        if isinstance(item, Anchor):
            raise self.error("an anchor cannot be repeated")
        if self.accept("+"):
            raise self.error("possessive quantifiers are not supported")
        self.accept("?")  # a lazy quantifier matches the same texts
        if self.quantifier() is not None:
            raise self.error("a quantifier after a quantifier; use a group")
        return Repeat(item, *bounds)

    def quantifier(self) -> tuple[int, int | None] | None:
        character = self.peek()
        if character in _QUANTIFIERS and character:
            self.position += 1
            return _QUANTIFIERS[character]
        return self.braces() if character == "{" else None

    def braces(self) -> tuple[int, int | None] | None:
        """Parse `{n}`, `{n,}`, `{n,m}` or `{,m}`. Any other brace is an ordinary character."""
        end = self.pattern.find("}", self.position)
        low, comma, high = self.pattern[self.position + 1 : end].partition(",") if end > 0 else ("", "", "")
        digits = low + high
        if not digits or not (digits.isascii() and digits.isdigit()):
            return None
        if len(low) > 4 or len(high) > 4 or max(int(low or 0), int(high or 0)) > _MAX_REPEATS:
            raise self.error(f"more than {_MAX_REPEATS} repetitions; use the modifier length")
        self.position = end + 1
        minimum = int(low or 0)
        maximum = (int(high) if high else None) if comma else minimum
        if maximum is not None and maximum < minimum:
            raise self.error(f"{{{minimum},{maximum}}} has a minimum that is greater than its maximum")
        return minimum, maximum

    # --- atoms --------------------------------------------------------------------------------------------------

    def atom(self, depth: int) -> Regex:
        character = self.advance()
        match character:
            case "(":
                return self.group(depth)
            case "[":
                return CharacterClass(self.character_class())
            case ".":
                return CharacterClass(lambda found: found != "\n")
            case "^" | "$":
                return Anchor(character == "$")
            case "\\":
                test = self.escape()
                return CharacterClass(test if callable(test) else test.__eq__)
            case "*" | "+" | "?":
                self.position -= 1
                raise self.error(f"there is nothing to repeat before '{character}'")
        return CharacterClass(character.__eq__)

    def group(self, depth: int) -> Regex:
        if self.accept("?") and not self.accept(":"):
            self.named_group()
        inner = self.alternation(depth + 1)
        if not self.accept(")"):
            raise self.error("a group is not closed")
        return inner

    def named_group(self) -> None:
        if not self.accept("P<"):
            raise self.error("look-around, flags and other extensions after '(?' are not supported")
        while self.advance() != ">":
            pass

    def escape(self) -> CharacterTest | str:
        """Parse the rest of an escape; return the test of a category, or a single character."""
        character = self.advance()
        if character in _CATEGORIES:
            return _CATEGORIES[character]
        if character in _CONTROLS:
            return _CONTROLS[character]
        if character in _HEX_SIZES:
            return self.hexadecimal(_HEX_SIZES[character])
        if character.isalnum():
            self.position -= 1
            what = "backreferences are" if character.isdigit() else f"the escape '\\{character}' is"
            raise self.error(f"{what} not supported")
        return character

    def hexadecimal(self, size: int) -> str:
        digits = self.pattern[self.position : self.position + size]
        if len(digits) < size or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
            raise self.error(f"{size} hexadecimal digits expected")
        self.position += size
        return chr(int(digits, 16))

    # --- character classes --------------------------------------------------------------------------------------

    def character_class(self) -> CharacterTest:
        negated = self.accept("^")
        singles: set[str] = set()
        ranges: list[tuple[str, str]] = []
        tests: list[CharacterTest] = []
        first = True
        while first or self.peek() != "]":
            first = False
            self.class_item(singles, ranges, tests)
        self.position += 1
        return _class_test(frozenset(singles), tuple(ranges), tuple(tests), negated)

    def class_item(
        self, singles: set[str], ranges: list[tuple[str, str]], tests: list[CharacterTest]
    ) -> None:
        low = self.class_character()
        if self.peek() == "-" and self.pattern[self.position + 1 : self.position + 2] not in ("", "]"):
            self.position += 1
            high = self.class_character()
            if callable(low) or callable(high) or high < low:
                raise self.error("a range in brackets must go from a smaller to a larger character")
            ranges.append((low, high))
        elif callable(low):
            tests.append(low)
        else:
            singles.add(low)

    def class_character(self) -> CharacterTest | str:
        character = self.advance()
        return self.escape() if character == "\\" else character


def _class_test(
    singles: frozenset[str],
    ranges: tuple[tuple[str, str], ...],
    tests: tuple[CharacterTest, ...],
    negated: bool,
) -> CharacterTest:
    def test(character: str) -> bool:
        found = (
            character in singles
            or any(low <= character <= high for low, high in ranges)
            or any(category(character) for category in tests)
        )
        return found is not negated

    return test
