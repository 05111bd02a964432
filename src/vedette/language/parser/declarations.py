"""Ontology files; constraints, rules and policies (docs/reference/grammar.md#types-and-ontologies)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from vedette.language.parser.recovery import ErrorRecovery
from vedette.language.parser.type_declarations import TypeDeclarationParser
from vedette.language.syntax.declarations import (
    ConstraintDeclaration,
    Declaration,
    OntologyDeclaration,
    OperationPattern,
    PolicyDeclaration,
    RuleDeclaration,
)
from vedette.language.syntax.expressions import TypeExpression, Variable, Wildcard
from vedette.language.syntax.grammar import DECLARATION_KEYWORDS, STATEMENT_KEYWORDS
from vedette.language.syntax.statements import Action, Kill, Link, Set, Spawn, Unlink

__all__ = ["DeclarationParser"]

_OPERATIONS = frozenset({"SPAWN", "KILL", "LINK", "UNLINK", "SET", "MATCH"})


class DeclarationParser(TypeDeclarationParser):
    __slots__ = ()

    def parse_ontology_file(self) -> tuple[Declaration, ...]:
        """Return all declarations of the text; raise one error that carries every syntax error."""
        recovery = ErrorRecovery(self, DECLARATION_KEYWORDS)
        found: list[Declaration] = []
        while self.token.kind != "end":
            if self.accept(";"):
                continue
            declaration = recovery.parse_or_skip(self.parse_declaration_or_ontology)
            if declaration is not None:
                found.append(declaration)
        recovery.finish()
        return tuple(found)

    def parse_declaration_or_ontology(self) -> Declaration:
        """Parse a declaration at the top level of a text, where `ontology Name { … }` is allowed too."""
        return self.parse_ontology() if self.token.symbol == "ONTOLOGY" else self.parse_declaration()

    def parse_ontology(self) -> OntologyDeclaration:
        start, doc = self.token.start, self.doc_comments.get(self.index)
        self.advance()
        name = self.expect_name("a name for the ontology")
        parents = self.parse_parents()
        self.expect("{", "and declarations")
        found: list[Declaration] = []
        while self.token.symbol != "}":
            if not self.accept(";"):
                found.append(self.parse_declaration())
        self.advance()
        return OntologyDeclaration(name, parents, tuple(found), doc, span=self.span_from(start))

    def parse_declaration(self) -> Declaration:
        parse = _DECLARATIONS.get(self.token.symbol)
        if parse is None:
            advice = (
                "statements are not declarations; pass them to run()"
                if self.token.symbol in STATEMENT_KEYWORDS
                else ""
            )
            self.fail_expected("a declaration: type, node, edge, constraint, rule or policy", advice)
        return parse(self)

    # --- constraints ----------------------------------------------------------------------------------------------

    def parse_constraint(self) -> ConstraintDeclaration:
        start, doc = self.token.start, self.doc_comments.get(self.index)
        self.advance()
        name = self.expect_name("a name for the constraint")
        soft, message = self.parse_constraint_options()
        self.expect(":", "and a pattern")
        pattern, where = self.parse_pattern(), self.parse_where()
        self.expect("=>", "and the condition that must hold")
        condition = self.parse_expression()
        span = self.span_from(start)
        return ConstraintDeclaration(name, pattern, condition, where, soft, message, doc, span=span)

    def parse_constraint_options(self) -> tuple[bool, str | None]:
        soft, message = False, None
        if not self.accept("["):
            return soft, message
        while True:
            if self.token.symbol in ("SOFT", "HARD"):
                soft = self.advance().symbol == "SOFT"
            elif self.accept("MESSAGE"):
                self.expect(":", "after message")
                message = self.expect_string("the message in quotes")
            else:
                self.fail_expected("soft, hard or message")
            if not self.accept(","):
                break
        self.expect("]", "or a comma after the option")
        return soft, message

    # --- rules ----------------------------------------------------------------------------------------------------

    def parse_rule(self) -> RuleDeclaration:
        start, doc = self.token.start, self.doc_comments.get(self.index)
        self.advance()
        name = self.expect_name("a name for the rule")
        priority, words = self.parse_rule_options()
        self.expect(":", "and a pattern")
        pattern, where = self.parse_pattern(), self.parse_where()
        self.expect("=>", "and what the rule does")
        actions = [self.parse_rule_action()]
        while self.accept(","):
            actions.append(self.parse_rule_action())
        manual, authority, span = "MANUAL" in words, "INHERIT_AUTHORITY" in words, self.span_from(start)
        return RuleDeclaration(
            name, pattern, tuple(actions), where, priority, manual, authority, doc, span=span
        )

    def parse_rule_options(self) -> tuple[int, set[str]]:
        priority, words = 0, set[str]()
        if not self.accept("["):
            return priority, words
        while True:
            if self.token.symbol == "PRIORITY":
                priority = self.parse_priority()
            elif self.token.symbol in ("AUTO", "MANUAL", "INHERIT_AUTHORITY"):
                words.add(self.advance().symbol)
            else:
                self.fail_expected("priority, auto, manual or inherit_authority")
            if not self.accept(","):
                break
        self.expect("]", "or a comma after the option")
        return priority, words - ({"MANUAL"} if "AUTO" in words else set())

    def parse_priority(self) -> int:
        self.advance()
        self.expect(":", "after priority")
        sign = -1 if self.accept("-") else 1
        return sign * self.expect_integer("a whole number")

    def parse_rule_action(self) -> Action:
        """Parse an action of a rule: the short form of a statement, whose targets are variables of the rule."""
        start, word = self.token.start, self.token.symbol
        if word == "SPAWN":
            item = self.parse_spawn_item()
            return Spawn((item,), span=self.span_from(start))
        if word == "LINK":
            return self.parse_rule_link()
        if word not in ("KILL", "UNLINK", "SET"):
            self.fail_expected("SPAWN, KILL, LINK, UNLINK or SET")
        self.advance()
        place = self.token.span
        variable = Variable(self.expect_identifier("a variable of the rule"), span=place)
        if word == "KILL":
            return Kill(variable, span=self.span_from(start))
        if word == "UNLINK":
            return Unlink(variable, span=self.span_from(start))
        self.expect(".", "and the attribute to SET")
        assignment = self.parse_assignment()
        return Set(variable, (assignment,), span=self.span_from(start))

    def parse_rule_link(self) -> Link:
        start = self.advance().start
        edge = self.expect_qualified_name("an edge type")
        targets = []
        for target in self.parse_edge_targets(edge):
            if isinstance(target, Wildcard):
                raise self.error_at("a new edge needs all its targets; `_` is not a target", target.span)
            targets.append(target)
        variable, assignments = self.parse_alias(), self.parse_assignments()
        return Link(edge, tuple(targets), variable, assignments, span=self.span_from(start))

    # --- policies -------------------------------------------------------------------------------------------------

    def parse_policy(self) -> PolicyDeclaration:
        start, doc = self.token.start, self.doc_comments.get(self.index)
        self.advance()
        name = self.expect_name("a name for the policy")
        priority = 0
        if self.accept("["):
            priority = (
                self.parse_priority() if self.token.symbol == "PRIORITY" else self.fail_expected("priority")
            )
            self.expect("]", "after the priority")
        self.expect(":", "and ON")
        self.expect("ON", "and the operations")
        operations = [self.parse_operation_pattern()]
        while self.accept("|"):
            operations.append(self.parse_operation_pattern())
        if self.token.symbol not in ("ALLOW", "DENY"):
            self.fail_expected("ALLOW, DENY or `|` and another operation")
        allow = self.advance().symbol == "ALLOW"
        self.expect("IF", "and a condition")
        condition = self.parse_expression()
        message = self.expect_string("the message in quotes") if self.accept("MESSAGE") else None
        span = self.span_from(start)
        return PolicyDeclaration(name, tuple(operations), allow, condition, priority, message, doc, span=span)

    def parse_operation_pattern(self) -> OperationPattern:
        """`*`, `SPAWN`, `SET(t: Task, "status")`, `LINK(_, t: Task)`, `MATCH(t: Task).score`."""
        start = self.token.start
        if self.accept("*"):
            return OperationPattern("*", span=self.span_from(start))
        meta = "META " if self.accept("META") else ""
        if self.token.symbol not in _OPERATIONS:
            self.fail_expected("SPAWN, KILL, LINK, UNLINK, SET, MATCH or `*`")
        operation = meta + self.advance().symbol
        variable, type_, attribute, second = self.parse_operation_arguments()
        if self.token.symbol == ".":
            if attribute is not None:
                self.fail_expected(
                    "the end of the operation", f'the attribute "{attribute}" is given already'
                )
            self.advance()
            attribute = self.expect_name("the name of an attribute")
        return OperationPattern(operation, variable, type_, attribute, second, span=self.span_from(start))

    def parse_operation_arguments(
        self,
    ) -> tuple[
        str | None, TypeExpression | None, str | None, tuple[str | None, TypeExpression | None] | None
    ]:
        if not self.accept("("):
            return None, None, None, None
        variable, type_ = self.parse_operation_argument()
        attribute, second = None, None
        if self.accept(","):
            if self.token.kind == "string":
                attribute = self.expect_string("an attribute in quotes")
            else:
                second = self.parse_operation_argument()
        self.expect(")", "after the arguments")
        return variable, type_, attribute, None if second == (None, None) else second

    def parse_operation_argument(self) -> tuple[str | None, TypeExpression | None]:
        """`v: Type`, a name or `_`. A name alone is parsed as a variable; the schema may have a type of that name."""
        if self.token.text == "_":
            self.advance()
            return None, None
        variable = self.expect_name("a variable, a type or `_`")
        return variable, self.parse_type_expression() if self.accept(":") else None


_DECLARATIONS: Mapping[str, Callable[[DeclarationParser], Declaration]] = {
    "TYPE": DeclarationParser.parse_alias_declaration,
    **dict.fromkeys(("NODE", "ABSTRACT", "SEALED", "["), DeclarationParser.parse_node_declaration),
    "EDGE": DeclarationParser.parse_edge_declaration,
    "CONSTRAINT": DeclarationParser.parse_constraint,
    "RULE": DeclarationParser.parse_rule,
    "POLICY": DeclarationParser.parse_policy,
}
