"""SPAWN, KILL, LINK, UNLINK and SET (spec/language.md §1.4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from vedette.language.parser.match import ACTION_WORDS, MatchParser
from vedette.language.syntax.expressions import Variable
from vedette.language.syntax.statements import (
    Action,
    Assignment,
    ByEndpoints,
    Kill,
    Link,
    LinkTarget,
    Match,
    Returning,
    ReturnItem,
    Set,
    Spawn,
    SpawnItem,
    Subquery,
    Target,
    Unlink,
)

__all__ = ["MutationParser"]


class MutationParser(MatchParser):
    __slots__ = ()

    def actions(self) -> tuple[Action, ...]:
        """One or more, side by side."""
        found = [self.action()]
        while self.token.word in ACTION_WORDS:
            found.append(self.action())
        return tuple(found)

    def action(self) -> Action:
        read = _ACTIONS.get(self.token.word)
        if read is None:
            self.fail("SPAWN, KILL, LINK, UNLINK or SET")
        return read(self)

    # --- SPAWN ----------------------------------------------------------------------------------------------------

    def spawn(self) -> Spawn:
        start = self.token.start
        items = [self.spawn_item()]
        while self.token.word == "," and self.peek() == "SPAWN":
            self.take()
            items.append(self.spawn_item())
        returning = self.returning()
        return Spawn(tuple(items), returning, span=self.span_from(start))

    def spawn_item(self) -> SpawnItem:
        start = self.expect("SPAWN").start
        variable = self.identifier("a variable, as in `SPAWN t: Task { … }`")
        self.expect(":", "and the type, as in `SPAWN t: Task`")
        type_, assignments = self.type_expression(), self.assignments()
        return SpawnItem(variable, type_, assignments, span=self.span_from(start))

    def assignments(self) -> tuple[Assignment, ...]:
        """`{ a = e, … }`, when there is one."""
        if not self.accept("{"):
            return ()
        found: list[Assignment] = []
        while self.token.word != "}":
            found.append(self.assignment())
            if not self.accept(","):
                break
        self.expect("}", "or a comma after the value")
        return tuple(found)

    def assignment(self) -> Assignment:
        start = self.token.start
        name = self.name("the name of an attribute")
        self.expect("=", f"and the value of `{name}`")
        expression = self.expression()
        return Assignment(name, expression, span=self.span_from(start))

    # --- targets --------------------------------------------------------------------------------------------------

    def mutation_target(self) -> Target:
        """`#id`, a variable, `{ MATCH … RETURN v }`, or `edge(a, _)`."""
        token = self.token
        if token.kind == "id":
            return self.id_reference()
        if token.word == "{":
            return self.subquery()
        if token.kind == "name" and self.peek() in ("(", "::") and self.at_callable():
            edge = self.qualified("an edge type")
            targets = self.targets(edge, star=True)
            return ByEndpoints(edge, targets, span=self.span_from(token.start))
        name = self.identifier("a target: a variable, `#id` or `{ MATCH … RETURN v }`")
        return Variable(name, span=token.span)

    def subquery(self) -> Subquery:
        start = self.expect("{").start
        first = self.token
        match = self.match() if first.word == "MATCH" else self.fail("MATCH")
        if not isinstance(match, Match):
            raise self.mistake(
                "a MATCH in the place of a target ends with RETURN and changes nothing", first.span
            )
        self.expect("}", "after the MATCH")
        return Subquery(match, span=self.span_from(start))

    def returning(self) -> Returning | None:
        if self.token.word != "RETURNING":
            return None
        start = self.take().start
        if self.accept("*"):
            return Returning(span=self.span_from(start))
        items = [self.return_item()]
        while self.accept(","):
            items.append(self.return_item())
        return Returning(tuple(items), span=self.span_from(start))

    def return_item(self) -> ReturnItem:
        """`id`, `created`, `count(*)`, `attr` or `variable.attr`."""
        start = self.token.start
        counts = self.token.word == "COUNT" and self.peek() == "("
        name = self.name("`*`, `id` or the name of an attribute")
        attribute = None
        if counts:
            self.take()
            self.expect("*", "in count(*)")
            self.expect(")", "after count(*")
            name = "count(*)"
        elif self.accept("."):
            attribute = self.name("the name of an attribute")
        alias = self.name("a column name after AS") if self.accept("AS") else None
        return ReturnItem(name, attribute, alias, span=self.span_from(start))

    # --- KILL, LINK, UNLINK, SET ----------------------------------------------------------------------------------

    def kill(self) -> Kill:
        start = self.take().start
        target = self.mutation_target()
        cascade = None
        if self.accept("CASCADE"):
            cascade = True
        elif self.token.word == "NO" and self.peek() == "CASCADE":
            self.take()
            self.take()
            cascade = False
        returning = self.returning()
        return Kill(target, cascade, returning, span=self.span_from(start))

    def unlink(self) -> Unlink:
        start = self.take().start
        target = self.mutation_target()
        returning = self.returning()
        return Unlink(target, returning, span=self.span_from(start))

    def set(self) -> Set:
        """`SET t.a = e` or `SET t { a = e, … }`."""
        start = self.take().start
        target = self.mutation_target()
        block = self.token.word == "{"
        if block:
            assignments = self.assignments()
        else:
            self.expect(".", "and an attribute, or a block { … }, after what to SET")
            assignments = (self.assignment(),)
        returning = self.returning()
        return Set(target, assignments, block, returning, span=self.span_from(start))

    def link(self) -> Link:
        """The edge may be named in front, `LINK e: knows(a, b)`, or by AS, before or after the attributes."""
        start = self.take().start
        if_not_exists = self.token.word == "IF" and self.peek() == "NOT"
        if if_not_exists:
            self.take()
            self.take()
            self.expect("EXISTS", "after IF NOT")
        variable = self.identifier("a variable") if self.peek() == ":" else None
        if variable is not None:
            self.take()
        edge = self.qualified("an edge type")
        targets = self.link_targets(edge)
        variable = self.edge_alias(variable)
        assignments = self.assignments()
        variable = self.edge_alias(variable)
        returning = self.returning()
        return Link(
            edge, targets, variable, assignments, if_not_exists, returning, span=self.span_from(start)
        )

    def edge_alias(self, known: str | None) -> str | None:
        if self.token.word != "AS":
            return known
        if known is not None:
            self.fail("the end of LINK", f"the edge is called `{known}` already")
        return self.alias()

    def link_targets(self, edge: str) -> tuple[LinkTarget, ...]:
        self.expect("(", f"and the targets of `{edge}`")
        found = [self.link_target()]
        while self.accept(","):
            found.append(self.link_target())
        self.expect(")", f"after the targets of `{edge}`")
        return tuple(found)

    def link_target(self) -> LinkTarget:
        if self.token.word == "SPAWN":
            return self.inline_spawn()
        if self.token.word == "{":
            return self.subquery()
        return self.expression()

    def inline_spawn(self) -> SpawnItem:
        """`SPAWN v: Type { … }`, `SPAWN Type { … } AS v`, or without a name."""
        start = self.take().start
        variable = self.identifier("a variable") if self.peek() == ":" else None
        if variable is not None:
            self.take()
        type_, assignments = self.type_expression(), self.assignments()
        if self.token.word == "AS" and variable is not None:
            self.fail("`,` or `)`", f"the node is called `{variable}` already")
        variable = variable or self.alias()
        return SpawnItem(variable, type_, assignments, span=self.span_from(start))


_ACTIONS: Mapping[str, Callable[[MutationParser], Action]] = {
    "SPAWN": MutationParser.spawn,
    "KILL": MutationParser.kill,
    "LINK": MutationParser.link,
    "UNLINK": MutationParser.unlink,
    "SET": MutationParser.set,
}
