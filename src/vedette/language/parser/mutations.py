"""SPAWN, KILL, LINK, UNLINK and SET (docs/reference/grammar.md#statements)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from vedette.language.parser.match import MatchParser
from vedette.language.syntax.expressions import Variable
from vedette.language.syntax.grammar import ACTION_KEYWORDS
from vedette.language.syntax.statements import (
    Action,
    Assignment,
    EdgesByTargets,
    Kill,
    Link,
    LinkTarget,
    Match,
    MutationTarget,
    Returning,
    ReturningItem,
    Set,
    Spawn,
    SpawnItem,
    Subquery,
    Unlink,
)

__all__ = ["MutationParser"]


class MutationParser(MatchParser):
    __slots__ = ()

    def parse_actions(self) -> tuple[Action, ...]:
        """One or more actions in a row."""
        found = [self.parse_action()]
        while self.token.symbol in ACTION_KEYWORDS:
            found.append(self.parse_action())
        return tuple(found)

    def parse_action(self) -> Action:
        parse = _ACTIONS.get(self.token.symbol)
        if parse is None:
            self.fail_expected("SPAWN, KILL, LINK, UNLINK or SET")
        return parse(self)

    # --- SPAWN ----------------------------------------------------------------------------------------------------

    def parse_spawn(self) -> Spawn:
        start = self.token.start
        items = [self.parse_spawn_item()]
        while self.token.symbol == "," and self.peek() == "SPAWN":
            self.advance()
            items.append(self.parse_spawn_item())
        returning = self.parse_returning()
        return Spawn(tuple(items), returning, span=self.span_from(start))

    def parse_spawn_item(self) -> SpawnItem:
        start = self.expect("SPAWN").start
        variable = self.expect_identifier("a variable, as in `SPAWN t: Task { … }`")
        self.expect(":", "and the type, as in `SPAWN t: Task`")
        type_, assignments = self.parse_type_expression(), self.parse_assignments()
        return SpawnItem(variable, type_, assignments, span=self.span_from(start))

    def parse_assignments(self) -> tuple[Assignment, ...]:
        """`{ a = e, … }`, or nothing."""
        if not self.accept("{"):
            return ()
        found: list[Assignment] = []
        while self.token.symbol != "}":
            found.append(self.parse_assignment())
            if not self.accept(","):
                break
        self.expect("}", "or a comma after the value")
        return tuple(found)

    def parse_assignment(self) -> Assignment:
        start = self.token.start
        name = self.expect_name("the name of an attribute")
        self.expect("=", f"and the value of `{name}`")
        expression = self.parse_expression()
        return Assignment(name, expression, span=self.span_from(start))

    # --- targets --------------------------------------------------------------------------------------------------

    def parse_mutation_target(self) -> MutationTarget:
        """`#id`, a variable, `{ MATCH … RETURN v }`, or `edge(a, _)`."""
        token = self.token
        if token.kind == "id":
            return self.parse_id_reference()
        if token.symbol == "{":
            return self.parse_subquery()
        if token.kind == "name" and self.peek() in ("(", "::") and self.at_callable():
            edge = self.expect_qualified_name("an edge type")
            targets = self.parse_edge_targets(edge, star=True)
            return EdgesByTargets(edge, targets, span=self.span_from(token.start))
        name = self.expect_identifier("a target: a variable, `#id` or `{ MATCH … RETURN v }`")
        return Variable(name, span=token.span)

    def parse_subquery(self) -> Subquery:
        start = self.expect("{").start
        first = self.token
        match = self.parse_match() if first.symbol == "MATCH" else self.fail_expected("MATCH")
        if not isinstance(match, Match):
            raise self.error_at(
                "a MATCH that is used as a target must end with RETURN and cannot change anything", first.span
            )
        self.expect("}", "after the MATCH")
        return Subquery(match, span=self.span_from(start))

    def parse_returning(self) -> Returning | None:
        if self.token.symbol != "RETURNING":
            return None
        start = self.advance().start
        if self.accept("*"):
            return Returning(span=self.span_from(start))
        items = [self.parse_returning_item()]
        while self.accept(","):
            items.append(self.parse_returning_item())
        return Returning(tuple(items), span=self.span_from(start))

    def parse_returning_item(self) -> ReturningItem:
        """`id`, `created`, `count(*)`, `attr` or `variable.attr`."""
        start = self.token.start
        counts = self.token.symbol == "COUNT" and self.peek() == "("
        name = self.expect_name("`*`, `id` or the name of an attribute")
        attribute = None
        if counts:
            self.advance()
            self.expect("*", "in count(*)")
            self.expect(")", "after count(*")
            name = "count(*)"
        elif self.accept("."):
            attribute = self.expect_name("the name of an attribute")
        alias = self.expect_name("a column name after AS") if self.accept("AS") else None
        return ReturningItem(name, attribute, alias, span=self.span_from(start))

    # --- KILL, LINK, UNLINK, SET ----------------------------------------------------------------------------------

    def parse_kill(self) -> Kill:
        start = self.advance().start
        target = self.parse_mutation_target()
        cascade = None
        if self.accept("CASCADE"):
            cascade = True
        elif self.token.symbol == "NO" and self.peek() == "CASCADE":
            self.advance()
            self.advance()
            cascade = False
        returning = self.parse_returning()
        return Kill(target, cascade, returning, span=self.span_from(start))

    def parse_unlink(self) -> Unlink:
        start = self.advance().start
        target = self.parse_mutation_target()
        returning = self.parse_returning()
        return Unlink(target, returning, span=self.span_from(start))

    def parse_set(self) -> Set:
        """`SET t.a = e` or `SET t { a = e, … }`."""
        start = self.advance().start
        target = self.parse_mutation_target()
        block = self.token.symbol == "{"
        if block:
            assignments = self.parse_assignments()
        else:
            self.expect(".", "and an attribute, or a block { … }, after what to SET")
            assignments = (self.parse_assignment(),)
        returning = self.parse_returning()
        return Set(target, assignments, block, returning, span=self.span_from(start))

    def parse_link(self) -> Link:
        """`LINK knows(a, b)`. The edge is named by `LINK e: …`, or by AS before or after the attributes."""
        start = self.advance().start
        if_not_exists = self.token.symbol == "IF" and self.peek() == "NOT"
        if if_not_exists:
            self.advance()
            self.advance()
            self.expect("EXISTS", "after IF NOT")
        variable = self.expect_identifier("a variable") if self.peek() == ":" else None
        if variable is not None:
            self.advance()
        edge = self.expect_qualified_name("an edge type")
        targets = self.parse_link_targets(edge)
        variable = self.parse_edge_alias(variable)
        assignments = self.parse_assignments()
        variable = self.parse_edge_alias(variable)
        returning = self.parse_returning()
        return Link(
            edge, targets, variable, assignments, if_not_exists, returning, span=self.span_from(start)
        )

    def parse_edge_alias(self, known: str | None) -> str | None:
        if self.token.symbol != "AS":
            return known
        if known is not None:
            self.fail_expected("the end of LINK", f"the edge is called `{known}` already")
        return self.parse_alias()

    def parse_link_targets(self, edge: str) -> tuple[LinkTarget, ...]:
        self.expect("(", f"and the targets of `{edge}`")
        found = [self.parse_link_target()]
        while self.accept(","):
            found.append(self.parse_link_target())
        self.expect(")", f"after the targets of `{edge}`")
        return tuple(found)

    def parse_link_target(self) -> LinkTarget:
        if self.token.symbol == "SPAWN":
            return self.parse_inline_spawn()
        if self.token.symbol == "{":
            return self.parse_subquery()
        return self.parse_expression()

    def parse_inline_spawn(self) -> SpawnItem:
        """`SPAWN v: Type { … }`, `SPAWN Type { … } AS v`, or without a name."""
        start = self.advance().start
        variable = self.expect_identifier("a variable") if self.peek() == ":" else None
        if variable is not None:
            self.advance()
        type_, assignments = self.parse_type_expression(), self.parse_assignments()
        if self.token.symbol == "AS" and variable is not None:
            self.fail_expected("`,` or `)`", f"the node is called `{variable}` already")
        variable = variable or self.parse_alias()
        return SpawnItem(variable, type_, assignments, span=self.span_from(start))


_ACTIONS: Mapping[str, Callable[[MutationParser], Action]] = {
    "SPAWN": MutationParser.parse_spawn,
    "KILL": MutationParser.parse_kill,
    "LINK": MutationParser.parse_link,
    "UNLINK": MutationParser.parse_unlink,
    "SET": MutationParser.parse_set,
}
