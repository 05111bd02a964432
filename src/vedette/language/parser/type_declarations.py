"""Attributes and their modifiers, type aliases, nodes and edges (spec/language.md §1.3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from vedette.language.parser.watches import WatchParser
from vedette.language.syntax.declarations import (
    AliasDeclaration,
    AttributeDeclaration,
    EdgeDeclaration,
    EdgeParameter,
    Modifier,
    NodeDeclaration,
)
from vedette.language.syntax.expressions import UnionType
from vedette.language.syntax.grammar import NON_CALLABLE_KEYWORDS

__all__ = ["TypeDeclarationParser"]

_NODE_MODIFIERS = frozenset({"ABSTRACT", "SEALED", "SINGLETON"})
_PLAIN_MODIFIERS = frozenset({"REQUIRED", "UNIQUE", "READONLY"})
_EDGE_MODIFIERS = frozenset({"SYMMETRIC", "NO_SELF", "ACYCLIC", "UNIQUE", "INDEXED"})
_KILL_ACTIONS = ("CASCADE", "UNLINK", "PREVENT")


class TypeDeclarationParser(WatchParser):
    __slots__ = ()

    def alias_declaration(self) -> AliasDeclaration:
        start, doc = self.token.start, self.docs.get(self.index)
        self.advance()
        name = self.expect_name("a name for the type")
        self.expect("=", "and a type")
        type_, modifiers = self.type_expression(), self.attribute_modifiers()
        if modifiers and isinstance(type_, UnionType):
            raise self.error_at("a union of types takes no modifiers", modifiers[0].span)
        return AliasDeclaration(name, type_, tuple(modifiers), doc, span=self.span_from(start))

    # --- nodes ----------------------------------------------------------------------------------------------------

    def node_declaration(self) -> NodeDeclaration:
        """The modifiers may stand before `node`, after the name and after the parents (ruling C20)."""
        start, doc = self.token.start, self.docs.get(self.index)
        modifiers = self.node_modifiers()
        self.expect("NODE", "after the modifiers")
        name = self.expect_name("a name for the node type")
        modifiers |= self.parse_trailing_node_modifiers()
        parents = self.parents()
        modifiers |= self.parse_trailing_node_modifiers()
        attributes = self.attributes()
        return NodeDeclaration(
            name, parents, attributes, frozenset(modifiers), doc, span=self.span_from(start)
        )

    def parents(self) -> tuple[str, ...]:
        if not self.accept(":"):
            return ()
        found = [self.expect_qualified_name("the name of a parent")]
        while self.accept(","):
            found.append(self.expect_qualified_name("the name of a parent"))
        return tuple(found)

    def node_modifiers(self) -> set[str]:
        """`abstract sealed` or `[abstract, sealed]`."""
        return self.bracketed_modifiers() | self.bare_modifiers()

    def bracketed_modifiers(self) -> set[str]:
        found: set[str] = set()
        if self.accept("["):
            found.add(self.node_modifier())
            while self.accept(","):
                found.add(self.node_modifier())
            self.expect("]", "after the modifiers")
        return found

    def bare_modifiers(self) -> set[str]:
        found: set[str] = set()
        while self.token.symbol in ("ABSTRACT", "SEALED"):
            found.add(self.advance().text.lower())
        return found

    def parse_trailing_node_modifiers(self) -> set[str]:
        """After a name, words before `node` belong to the next one, and a bracket does when it starts a line."""
        found: set[str] = set()
        if self.token.symbol == "[" and "\n" not in self.source[self.end : self.token.start]:
            found = self.bracketed_modifiers()
        return found if self.at_next_node() else found | self.node_modifiers()

    def node_modifier(self) -> str:
        if self.token.symbol == "EXTENSION" and self.peek() == "-" and self.peek(2) == "POINT":
            self.advance()
            self.advance()
            self.advance()
            return "extension-point"
        if self.token.symbol not in _NODE_MODIFIERS:
            self.fail_expected("abstract, sealed, singleton or extension-point")
        return self.advance().text.lower()

    def at_next_node(self) -> bool:
        """At modifiers that stand in front of `node`, whatever was read before them."""
        tokens, index = self.tokens, self.index
        if self.token.symbol == "[":
            if self.peek() not in _NODE_MODIFIERS | {"EXTENSION"} or self.peek(2) not in (",", "]", "-"):
                return False
            while tokens[index].kind != "end" and tokens[index].symbol != "]":
                index += 1
            index += tokens[index].kind != "end"
        while tokens[index].symbol in ("ABSTRACT", "SEALED"):
            index += 1
        return tokens[index].symbol == "NODE" and tokens[index + 1].kind == "name"

    # --- attributes -----------------------------------------------------------------------------------------------

    def attributes(self) -> tuple[AttributeDeclaration, ...]:
        """`{ … }` when there is one; commas between attributes are optional."""
        if not self.accept("{"):
            return ()
        found: list[AttributeDeclaration] = []
        while self.token.symbol != "}":
            found.append(self.attribute())
            self.accept(",")
        self.advance()
        return tuple(found)

    def attribute(self) -> AttributeDeclaration:
        """Modifiers may stand before and after the default; `[default: e]` is a default too."""
        start, doc = self.token.start, self.docs.get(self.index)
        name = self.expect_name("the name of an attribute or `}`")
        self.expect(":", f"and the type of `{name}`")
        type_, modifiers = self.type_expression(), self.attribute_modifiers()
        equals = self.token
        default = self.expression() if self.accept("=") else None
        modifiers += self.attribute_modifiers()
        kept = [modifier for modifier in modifiers if modifier.name != "default"]
        moved = [modifier for modifier in modifiers if modifier.name == "default"]
        if len(moved) + (default is not None) > 1:
            raise self.error_at(
                f"`{name}` has more than one default; keep one", (moved[-1] if moved else equals).span
            )
        if moved:
            default = moved[0].value  # type: ignore[assignment]
        return AttributeDeclaration(name, type_, tuple(kept), default, doc, span=self.span_from(start))

    def attribute_modifiers(self) -> list[Modifier]:
        found: list[Modifier] = []
        while self.token.symbol == "[" and not self.at_next_node():
            self.advance()
            found.append(self.attribute_modifier())
            while self.accept(","):
                found.append(self.attribute_modifier())
            self.expect("]", "or a comma after the modifier")
        return found

    def attribute_modifier(self) -> Modifier:
        start, word = self.token.start, self.token.symbol
        if word in (">=", "<=", ">", "<"):
            self.advance()
            return Modifier(word, self.expect_number(f"a number after `{word}`"), span=self.span_from(start))
        if word == "-" or self.token.kind in ("int", "float"):
            low = self.expect_number("a number")
            self.expect("..", "and the upper end of the range")
            high = self.expect_number("the upper end of the range")
            return Modifier("range", (low, high), span=self.span_from(start))
        name = self.expect_name("a modifier").lower()
        value = self.modifier_value(word)
        return Modifier(name, value, span=self.span_from(start))

    def modifier_value(self, word: str) -> object:
        """What follows the name; None for the plain ones."""
        if word in _PLAIN_MODIFIERS or (word == "INDEXED" and self.token.symbol != ":"):
            return None
        if word == "DEFAULT" and self.accept("="):
            return self.expression()
        read = _MODIFIER_VALUE_PARSERS.get(word)
        if read is None:
            known = "required, unique, readonly, indexed, in, length, match, format, default, a comparison or a range"
            self.fail_expected("a modifier", f"known are {known}", self.tokens[self.index - 1])
        self.expect(":", f"after {word.lower()}")
        return read(self)

    def index_order(self) -> str:
        if self.token.symbol not in ("ASC", "DESC"):
            self.fail_expected("asc or desc")
        return self.advance().text.lower()

    def length_range(self) -> tuple[int, int]:
        low = self.expect_integer("the least length")
        self.expect("..", "and the greatest length")
        return low, self.expect_integer("the greatest length")

    # --- edges ----------------------------------------------------------------------------------------------------

    def edge_declaration(self) -> EdgeDeclaration:
        start, doc = self.token.start, self.docs.get(self.index)
        self.advance()
        if self.token.symbol in NON_CALLABLE_KEYWORDS:
            self.fail_expected("a name for the edge type", f"a pattern could not use `{self.token.text}`")
        name = self.expect_name("a name for the edge type")
        self.expect("(", "and the parameters of the edge")
        parameters = [self.edge_parameter()]
        while self.accept(","):
            parameters.append(self.edge_parameter())
        self.expect(")", "or a comma after the parameter")
        modifiers = self.edge_modifiers()
        attributes = self.attributes()
        modifiers += self.edge_modifiers()
        span = self.span_from(start)
        return EdgeDeclaration(name, tuple(parameters), attributes, tuple(modifiers), doc, span=span)

    def edge_parameter(self) -> EdgeParameter:
        start = self.token.start
        name = self.expect_name("the name of a parameter")
        self.expect(":", f"and the type of `{name}`")
        type_ = self.type_expression()
        return EdgeParameter(name, type_, span=self.span_from(start))

    def edge_modifiers(self) -> list[Modifier]:
        found: list[Modifier] = []
        while self.token.symbol == "[" and not self.at_next_node():
            self.advance()
            found.append(self.edge_modifier())
            while self.accept(","):
                found.append(self.edge_modifier())
            self.expect("]", "or a comma after the modifier")
        return found

    def edge_modifier(self) -> Modifier:
        start, word = self.token.start, self.token.symbol
        if self.peek() == "->":
            value: object = self.cardinality()
            return Modifier("cardinality", value, span=self.span_from(start))
        if word in _EDGE_MODIFIERS:
            return Modifier(self.advance().text.lower(), span=self.span_from(start))
        if word not in ("ON_KILL_SOURCE", "ON_KILL_TARGET"):
            known = "symmetric, no_self, acyclic, unique, indexed, on_kill_source, on_kill_target"
            self.fail_expected("a modifier", f"known are {known} and cardinalities such as `task -> 0..1`")
        name = self.advance().text.lower()
        self.expect(":", f"after {name}")
        if self.token.symbol not in _KILL_ACTIONS:
            self.fail_expected("cascade, unlink or prevent")
        return Modifier(name, self.advance().text.lower(), span=self.span_from(start))

    def cardinality(self) -> tuple[str, int, int | None]:
        """`p -> 1`, `p -> 0..5`, `p -> 1..*`, `p -> *`."""
        parameter = self.expect_name("the name of a parameter")
        self.advance()
        if self.accept("*"):
            return parameter, 0, None
        low = self.expect_integer("a number or `*`")
        if not self.accept(".."):
            return parameter, low, low
        return parameter, low, None if self.accept("*") else self.expect_integer("a number or `*`")


_MODIFIER_VALUE_PARSERS: Mapping[str, Callable[[TypeDeclarationParser], object]] = {
    "INDEXED": TypeDeclarationParser.index_order,
    "IN": lambda parser: parser.list_literal().items,
    "LENGTH": TypeDeclarationParser.length_range,
    "MATCH": lambda parser: parser.expect_string("a regular expression in quotes"),
    "FORMAT": lambda parser: parser.expect_name("the name of a format, such as email"),
    "DEFAULT": lambda parser: parser.expression(),
}
