"""A small interpreter of the EBNF in docs/reference/grammar.md, over the lexer's tokens.

It knows nothing of the parser: a rule maps a place among the tokens to every place where it may end, remembered per
rule and place. So it accepts whatever some reading of the grammar accepts; the rules must not be left-recursive.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from vedette.language.parser.lexer import Token, tokenize
from vedette.language.syntax.grammar import NON_CALLABLE_KEYWORDS, RESERVED_KEYWORDS

__all__ = ["Grammar", "read_page"]

Places = frozenset[int]
Rule = Callable[["Reading", int], Places]

_BLOCK = re.compile(r"^```ebnf\n(.*?)^```", re.MULTILINE | re.DOTALL)
_SYMBOL = re.compile(r'\(\*.*?\*\)|"[^"]*"|[A-Za-z]+|[=|()?*+]', re.DOTALL)
_CLASSES: dict[str, Callable[[Token], bool]] = {
    "Name": lambda token: token.kind == "name",
    "Identifier": lambda token: token.kind == "name" and token.symbol not in RESERVED_KEYWORDS,
    "CallName": lambda token: token.kind == "name" and token.symbol not in NON_CALLABLE_KEYWORDS,
    "String": lambda token: token.kind == "string",
    "Int": lambda token: token.kind == "int",
    "Float": lambda token: token.kind == "float",
    "Timestamp": lambda token: token.kind == "timestamp",
    "Duration": lambda token: token.kind == "duration",
    "IdRef": lambda token: token.kind == "id",
    "Param": lambda token: token.kind == "param",
}


def read_page(path: Path) -> Grammar:
    return Grammar("\n".join(_BLOCK.findall(path.read_text(encoding="utf-8"))))


class Grammar:
    def __init__(self, source: str) -> None:
        self.symbols = [symbol for symbol in _SYMBOL.findall(source) if not symbol.startswith("(*")]
        self.index = 0
        self.rules: dict[str, Rule] = {}
        self.mentioned: set[str] = set()
        while self.index < len(self.symbols):
            name = self.take()
            assert self.take() == "=", f"a rule starts with `Name =`, not with {name}"
            assert name not in self.rules, f"{name} is defined twice"
            self.rules[name] = self.choice()

    @property
    def undefined(self) -> set[str]:
        return self.mentioned - self.rules.keys() - _CLASSES.keys()

    def accepts(self, start: str, text: str) -> bool:
        tokens = tokenize(text).tokens
        reading = Reading(self, tokens)
        return len(tokens) - 4 in reading.rule(start, 0)

    # From symbols to rules

    def take(self) -> str:
        self.index += 1
        return str(self.symbols[self.index - 1])

    def at(self, *symbols: str) -> bool:
        return self.index < len(self.symbols) and self.symbols[self.index] in symbols

    def at_rule(self) -> bool:
        return self.symbols[self.index + 1 : self.index + 2] == ["="]

    def choice(self) -> Rule:
        options = [self.sequence()]
        while self.at("|"):
            self.take()
            options.append(self.sequence())
        return lambda reading, place: frozenset().union(*(option(reading, place) for option in options))

    def sequence(self) -> Rule:
        parts = list(self.parts())

        def read(reading: Reading, place: int) -> Places:
            places = frozenset((place,))
            for part in parts:
                places = frozenset(end for start in places for end in part(reading, start))
            return places

        return read

    def parts(self) -> Iterator[Rule]:
        while self.index < len(self.symbols) and not self.at("|", ")") and not self.at_rule():
            rule = self.single()
            while self.at("?", "*", "+"):
                rule = _repeat(rule, self.take())
            yield rule

    def single(self) -> Rule:
        symbol = self.take()
        if symbol == "(":
            inner = self.choice()
            assert self.take() == ")"
            return inner
        if symbol.startswith('"'):
            word = symbol.strip('"').upper()
            return lambda reading, place: reading.step(place, reading.tokens[place].symbol == word)
        self.mentioned.add(symbol)
        if symbol in _CLASSES:
            test = _CLASSES[symbol]
            return lambda reading, place: reading.step(place, test(reading.tokens[place]))
        return lambda reading, place: reading.rule(symbol, place)


class Reading:
    """One text, and what is known about it."""

    def __init__(self, grammar: Grammar, tokens: tuple[Token, ...]) -> None:
        self.grammar = grammar
        self.tokens = tokens
        self.known: dict[tuple[str, int], Places] = {}

    def rule(self, name: str, place: int) -> Places:
        if (name, place) not in self.known:
            self.known[name, place] = self.grammar.rules[name](self, place)
        return self.known[name, place]

    def step(self, place: int, fits: bool) -> Places:
        return frozenset((place + 1,)) if fits else frozenset()


def _repeat(rule: Rule, mark: str) -> Rule:
    def read(reading: Reading, place: int) -> Places:
        found = set() if mark == "+" else {place}
        fresh = rule(reading, place)
        while fresh - found:
            found |= fresh
            if mark == "?":
                break
            fresh = frozenset(end for start in fresh for end in rule(reading, start))
        return frozenset(found)

    return read
