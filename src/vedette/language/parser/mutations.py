"""SPAWN, KILL, LINK, UNLINK and SET (spec/language.md §1.4)."""

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

    def actions(self) -> tuple[Action, ...]:
        """One or more, side by side."""
        found = [self.action()]
        while self.token.symbol in ACTION_KEYWORDS:
            found.append(self.action())
        return tuple(found)

    def action(self) -> Action:
        read = _ACTIONS.get(self.token.symbol)
        if read is None:
            self.fail_expected("SPAWN, KILL, LINK, UNLINK or SET")
        return read(self)

    # --- SPAWN ----------------------------------------------------------------------------------------------------

    def spawn(self) -> Spawn:
        start = self.token.start
        items = [self.spawn_item()]
        while self.token.symbol == "," and self.peek() == "SPAWN":
            self.advance()
            items.append(self.spawn_item())
        returning = self.returning()
        return Spawn(tuple(items), returning, span=self.span_from(start))

    def spawn_item(self) -> SpawnItem:
        start = self.expect("SPAWN").start
        variable = self.expect_identifier("a variable, as in `SPAWN t: Task { … }`")
        self.expect(":", "and the type, as in `SPAWN t: Task`")
        type_, assignments = self.type_expression(), self.assignments()
        return SpawnItem(variable, type_, assignments, span=self.span_from(start))

    def assignments(self) -> tuple[Assignment, ...]:
        """`{ a = e, … }`, when there is one."""
        if not self.accept("{"):
            return ()
        found: list[Assignment] = []
        while self.token.symbol != "}":
            found.append(self.assignment())
            if not self.accept(","):
                break
        self.expect("}", "or a comma after the value")
        return tuple(found)

    def assignment(self) -> Assignment:
        start = self.token.start
        name = self.expect_name("the name of an attribute")
        self.expect("=", f"and the value of `{name}`")
        expression = self.expression()
        return Assignment(name, expression, span=self.span_from(start))

    # --- targets --------------------------------------------------------------------------------------------------

    def mutation_target(self) -> MutationTarget:
        """`#id`, a variable, `{ MATCH … RETURN v }`, or `edge(a, _)`."""
        token = self.token
        if token.kind == "id":
            return self.id_reference()
        if token.symbol == "{":
            return self.subquery()
        if token.kind == "name" and self.peek() in ("(", "::") and self.at_callable():
            edge = self.expect_qualified_name("an edge type")
            targets = self.targets(edge, star=True)
            return EdgesByTargets(edge, targets, span=self.span_from(token.start))
        name = self.expect_identifier("a target: a variable, `#id` or `{ MATCH … RETURN v }`")
        return Variable(name, span=token.span)

    def subquery(self) -> Subquery:
        start = self.expect("{").start
        first = self.token
        match = self.match() if first.symbol == "MATCH" else self.fail_expected("MATCH")
        if not isinstance(match, Match):
            raise self.error_at(
                "a MATCH in the place of a target ends with RETURN and changes nothing", first.span
            )
        self.expect("}", "after the MATCH")
        return Subquery(match, span=self.span_from(start))

    def returning(self) -> Returning | None:
        if self.token.symbol != "RETURNING":
            return None
        start = self.advance().start
        if self.accept("*"):
            return Returning(span=self.span_from(start))
        items = [self.return_item()]
        while self.accept(","):
            items.append(self.return_item())
        return Returning(tuple(items), span=self.span_from(start))

    def return_item(self) -> ReturningItem:
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

    def kill(self) -> Kill:
        start = self.advance().start
        target = self.mutation_target()
        cascade = None
        if self.accept("CASCADE"):
            cascade = True
        elif self.token.symbol == "NO" and self.peek() == "CASCADE":
            self.advance()
            self.advance()
            cascade = False
        returning = self.returning()
        return Kill(target, cascade, returning, span=self.span_from(start))

    def unlink(self) -> Unlink:
        start = self.advance().start
        target = self.mutation_target()
        returning = self.returning()
        return Unlink(target, returning, span=self.span_from(start))

    def set(self) -> Set:
        """`SET t.a = e` or `SET t { a = e, … }`."""
        start = self.advance().start
        target = self.mutation_target()
        block = self.token.symbol == "{"
        if block:
            assignments = self.assignments()
        else:
            self.expect(".", "and an attribute, or a block { … }, after what to SET")
            assignments = (self.assignment(),)
        returning = self.returning()
        return Set(target, assignments, block, returning, span=self.span_from(start))

    def link(self) -> Link:
        """The edge may be named in front, `LINK e: knows(a, b)`, or by AS, before or after the attributes."""
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
        targets = self.link_targets(edge)
        variable = self.edge_alias(variable)
        assignments = self.assignments()
        variable = self.edge_alias(variable)
        returning = self.returning()
        return Link(
            edge, targets, variable, assignments, if_not_exists, returning, span=self.span_from(start)
        )

    def edge_alias(self, known: str | None) -> str | None:
        if self.token.symbol != "AS":
            return known
        if known is not None:
            self.fail_expected("the end of LINK", f"the edge is called `{known}` already")
        return self.alias()

    def link_targets(self, edge: str) -> tuple[LinkTarget, ...]:
        self.expect("(", f"and the targets of `{edge}`")
        found = [self.link_target()]
        while self.accept(","):
            found.append(self.link_target())
        self.expect(")", f"after the targets of `{edge}`")
        return tuple(found)

    def link_target(self) -> LinkTarget:
        if self.token.symbol == "SPAWN":
            return self.inline_spawn()
        if self.token.symbol == "{":
            return self.subquery()
        return self.expression()

    def inline_spawn(self) -> SpawnItem:
        """`SPAWN v: Type { … }`, `SPAWN Type { … } AS v`, or without a name."""
        start = self.advance().start
        variable = self.expect_identifier("a variable") if self.peek() == ":" else None
        if variable is not None:
            self.advance()
        type_, assignments = self.type_expression(), self.assignments()
        if self.token.symbol == "AS" and variable is not None:
            self.fail_expected("`,` or `)`", f"the node is called `{variable}` already")
        variable = variable or self.alias()
        return SpawnItem(variable, type_, assignments, span=self.span_from(start))


_ACTIONS: Mapping[str, Callable[[MutationParser], Action]] = {
    "SPAWN": MutationParser.spawn,
    "KILL": MutationParser.kill,
    "LINK": MutationParser.link,
    "UNLINK": MutationParser.unlink,
    "SET": MutationParser.set,
}
