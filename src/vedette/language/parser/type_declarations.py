"""Declarations of aliases, nodes, edges and attributes (docs/reference/grammar.md#types-and-ontologies)."""

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

    def parse_alias_declaration(self) -> AliasDeclaration:
        start, doc = self.token.start, self.doc_comments.get(self.index)
        self.advance()
        name = self.expect_name("a name for the type")
        self.expect("=", "and a type")
        type_, modifiers = self.parse_type_expression(), self.parse_attribute_modifiers()
        if modifiers and isinstance(type_, UnionType):
            raise self.error_at("a union of types takes no modifiers", modifiers[0].span)
        return AliasDeclaration(name, type_, tuple(modifiers), doc, span=self.span_from(start))

    # --- nodes ----------------------------------------------------------------------------------------------------

    def parse_node_declaration(self) -> NodeDeclaration:
        """Modifiers are allowed before `node`, after the name and after the parents."""
        start, doc = self.token.start, self.doc_comments.get(self.index)
        modifiers = self.parse_node_modifiers()
        self.expect("NODE", "after the modifiers")
        name = self.expect_name("a name for the node type")
        modifiers |= self.parse_trailing_node_modifiers()
        parents = self.parse_parents()
        modifiers |= self.parse_trailing_node_modifiers()
        attributes = self.parse_attributes()
        return NodeDeclaration(
            name, parents, attributes, frozenset(modifiers), doc, span=self.span_from(start)
        )

    def parse_parents(self) -> tuple[str, ...]:
        if not self.accept(":"):
            return ()
        found = [self.expect_qualified_name("the name of a parent")]
        while self.accept(","):
            found.append(self.expect_qualified_name("the name of a parent"))
        return tuple(found)

    def parse_node_modifiers(self) -> set[str]:
        """`abstract sealed` or `[abstract, sealed]`."""
        return self.parse_bracketed_node_modifiers() | self.parse_bare_node_modifiers()

    def parse_bracketed_node_modifiers(self) -> set[str]:
        found: set[str] = set()
        if self.accept("["):
            found.add(self.parse_node_modifier())
            while self.accept(","):
                found.add(self.parse_node_modifier())
            self.expect("]", "after the modifiers")
        return found

    def parse_bare_node_modifiers(self) -> set[str]:
        found: set[str] = set()
        while self.token.symbol in ("ABSTRACT", "SEALED"):
            found.add(self.advance().text.lower())
        return found

    def parse_trailing_node_modifiers(self) -> set[str]:
        """Parse modifiers after a name or a list of parents.

        Modifiers before the keyword `node` belong to the next declaration, and so does a bracket that starts a line.
        """
        found: set[str] = set()
        if self.token.symbol == "[" and "\n" not in self.source[self.end : self.token.start]:
            found = self.parse_bracketed_node_modifiers()
        return found if self.at_next_node() else found | self.parse_node_modifiers()

    def parse_node_modifier(self) -> str:
        if self.token.symbol == "EXTENSION" and self.peek() == "-" and self.peek(2) == "POINT":
            self.advance()
            self.advance()
            self.advance()
            return "extension-point"
        if self.token.symbol not in _NODE_MODIFIERS:
            self.fail_expected("abstract, sealed, singleton or extension-point")
        return self.advance().text.lower()

    def at_next_node(self) -> bool:
        """True at modifiers that are followed by the keyword `node`: the start of the next declaration."""
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

    def parse_attributes(self) -> tuple[AttributeDeclaration, ...]:
        """`{ … }`, or nothing. Commas between attributes are optional."""
        if not self.accept("{"):
            return ()
        found: list[AttributeDeclaration] = []
        while self.token.symbol != "}":
            found.append(self.parse_attribute())
            self.accept(",")
        self.advance()
        return tuple(found)

    def parse_attribute(self) -> AttributeDeclaration:
        """`name: Type [modifiers] = default [modifiers]`. `[default: e]` is a default too."""
        start, doc = self.token.start, self.doc_comments.get(self.index)
        name = self.expect_name("the name of an attribute or `}`")
        self.expect(":", f"and the type of `{name}`")
        type_, modifiers = self.parse_type_expression(), self.parse_attribute_modifiers()
        equals = self.token
        default = self.parse_expression() if self.accept("=") else None
        modifiers += self.parse_attribute_modifiers()
        kept = [modifier for modifier in modifiers if modifier.name != "default"]
        moved = [modifier for modifier in modifiers if modifier.name == "default"]
        if len(moved) + (default is not None) > 1:
            raise self.error_at(
                f"`{name}` has more than one default; keep one", (moved[-1] if moved else equals).span
            )
        if moved:
            default = moved[0].value  # type: ignore[assignment]
        return AttributeDeclaration(name, type_, tuple(kept), default, doc, span=self.span_from(start))

    def parse_attribute_modifiers(self) -> list[Modifier]:
        found: list[Modifier] = []
        while self.token.symbol == "[" and not self.at_next_node():
            self.advance()
            found.append(self.parse_attribute_modifier())
            while self.accept(","):
                found.append(self.parse_attribute_modifier())
            self.expect("]", "or a comma after the modifier")
        return found

    def parse_attribute_modifier(self) -> Modifier:
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
        value = self.parse_modifier_value(word)
        return Modifier(name, value, span=self.span_from(start))

    def parse_modifier_value(self, word: str) -> object:
        """Parse the value of a modifier; None for a modifier without a value."""
        if word in _PLAIN_MODIFIERS or (word == "INDEXED" and self.token.symbol != ":"):
            return None
        if word == "DEFAULT" and self.accept("="):
            return self.parse_expression()
        parse = _MODIFIER_VALUE_PARSERS.get(word)
        if parse is None:
            known = "required, unique, readonly, indexed, in, length, match, format, default, a comparison or a range"
            self.fail_expected("a modifier", f"the modifiers are {known}", self.tokens[self.index - 1])
        self.expect(":", f"after {word.lower()}")
        return parse(self)

    def parse_index_order(self) -> str:
        if self.token.symbol not in ("ASC", "DESC"):
            self.fail_expected("asc or desc")
        return self.advance().text.lower()

    def parse_length_range(self) -> tuple[int, int]:
        low = self.expect_integer("the minimum length")
        self.expect("..", "and the maximum length")
        return low, self.expect_integer("the maximum length")

    # --- edges ----------------------------------------------------------------------------------------------------

    def parse_edge_declaration(self) -> EdgeDeclaration:
        start, doc = self.token.start, self.doc_comments.get(self.index)
        self.advance()
        if self.token.symbol in NON_CALLABLE_KEYWORDS:
            self.fail_expected(
                "a name for the edge type", f"a pattern cannot use `{self.token.text}` as a name"
            )
        name = self.expect_name("a name for the edge type")
        self.expect("(", "and the parameters of the edge")
        parameters = [self.parse_edge_parameter()]
        while self.accept(","):
            parameters.append(self.parse_edge_parameter())
        self.expect(")", "or a comma after the parameter")
        modifiers = self.parse_edge_modifiers()
        attributes = self.parse_attributes()
        modifiers += self.parse_edge_modifiers()
        span = self.span_from(start)
        return EdgeDeclaration(name, tuple(parameters), attributes, tuple(modifiers), doc, span=span)

    def parse_edge_parameter(self) -> EdgeParameter:
        start = self.token.start
        name = self.expect_name("the name of a parameter")
        self.expect(":", f"and the type of `{name}`")
        type_ = self.parse_type_expression()
        return EdgeParameter(name, type_, span=self.span_from(start))

    def parse_edge_modifiers(self) -> list[Modifier]:
        found: list[Modifier] = []
        while self.token.symbol == "[" and not self.at_next_node():
            self.advance()
            found.append(self.parse_edge_modifier())
            while self.accept(","):
                found.append(self.parse_edge_modifier())
            self.expect("]", "or a comma after the modifier")
        return found

    def parse_edge_modifier(self) -> Modifier:
        start, word = self.token.start, self.token.symbol
        if self.peek() == "->":
            value: object = self.parse_cardinality()
            return Modifier("cardinality", value, span=self.span_from(start))
        if word in _EDGE_MODIFIERS:
            return Modifier(self.advance().text.lower(), span=self.span_from(start))
        if word not in ("ON_KILL_SOURCE", "ON_KILL_TARGET"):
            known = "symmetric, no_self, acyclic, unique, indexed, on_kill_source, on_kill_target"
            self.fail_expected(
                "a modifier", f"the modifiers are {known} and cardinalities such as `task -> 0..1`"
            )
        name = self.advance().text.lower()
        self.expect(":", f"after {name}")
        if self.token.symbol not in _KILL_ACTIONS:
            self.fail_expected("cascade, unlink or prevent")
        return Modifier(name, self.advance().text.lower(), span=self.span_from(start))

    def parse_cardinality(self) -> tuple[str, int, int | None]:
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
    "INDEXED": TypeDeclarationParser.parse_index_order,
    "IN": lambda parser: parser.parse_list_literal().items,
    "LENGTH": TypeDeclarationParser.parse_length_range,
    "MATCH": lambda parser: parser.expect_string("a regular expression in quotes"),
    "FORMAT": lambda parser: parser.expect_name("the name of a format, such as email"),
    "DEFAULT": lambda parser: parser.parse_expression(),
}
