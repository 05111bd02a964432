"""WATCH, ACK, NACK, EXTEND, REDRIVE and the management of watches (docs/reference/grammar.md#watches).

The parser accepts any option name, with a word, a word with arguments or an expression as its value. The engine reports
unknown options (E8009).
"""

from __future__ import annotations

from vedette.language.parser.cursor import ParseFailure
from vedette.language.parser.mutations import MutationParser
from vedette.language.syntax.expressions import Attribute, Expression, OrderTerm, Variable
from vedette.language.syntax.grammar import EXPRESSION_VALUED_OPTIONS, RESERVED_KEYWORDS
from vedette.language.syntax.statements import (
    Ack,
    Action,
    AlterWatch,
    Extend,
    ManageWatch,
    Nack,
    OptionValue,
    Redrive,
    Return,
    Watch,
    WatchOption,
)

__all__ = ["WatchParser"]


class WatchParser(MutationParser):
    __slots__ = ()

    def parse_watch(self) -> Watch:
        """`[name =] WATCH pattern [WHERE …] [options] [ON MATCH DO …] [RETURN …]`."""
        start = self.token.start
        name = None
        if self.peek() == "=":
            name = self.expect_identifier("a name for the watch")
            self.advance()
        self.expect("WATCH")
        pattern, where = self.parse_pattern(), self.parse_where()
        self.reject_optional_match()
        options = self.parse_options() if self.token.symbol == "[" else ()
        actions = self.parse_trigger_actions()
        returns = self.parse_watch_return() if self.token.symbol == "RETURN" else None
        if returns is None and not actions:
            advice = "write WHERE before the options" if self.token.symbol == "WHERE" else ""
            self.fail_expected("options `[…]`, ON MATCH DO or RETURN", advice)
        name = self.parse_handle_name(name, returns)
        return Watch(pattern, where, options, actions, returns, name, span=self.span_from(start))

    def reject_optional_match(self) -> None:
        """Report OPTIONAL MATCH with an alternative (E8009)."""
        if self.token.symbol == "OPTIONAL":
            message = "OPTIONAL MATCH is not part of WATCH; use EXISTS(…) or an aggregate over a pattern"
            raise self.error_at(message, self.token.span, "E8009")

    def parse_trigger_actions(self) -> tuple[Action, ...]:
        if not self.accept("ON"):
            return ()
        self.expect("MATCH", "after ON")
        self.expect("DO", "after ON MATCH")
        return self.parse_actions()

    def parse_watch_return(self) -> Return:
        start = self.token.start
        distinct, projections = self.parse_return_clause()
        if self.token.symbol in ("ORDER", "LIMIT", "OFFSET"):
            advice = "a watch never ends, so its rows have no order or limit; use the option [ordering: attribute(…)]"
            self.fail_expected("the end of WATCH", advice)
        return Return(projections, distinct, span=self.span_from(start))

    def parse_handle_name(self, name: str | None, returns: Return | None) -> str | None:
        """Return the watch's name. A trailing AS names the watch, even if it is also the alias of the last column."""
        if name is not None:
            return name
        if self.token.symbol == "AS":
            return self.parse_alias()
        return returns.projections[-1].alias if returns else None

    # --- options --------------------------------------------------------------------------------------------------

    def parse_options(self) -> tuple[WatchOption, ...]:
        """One list of options in brackets, or several in a row."""
        found: list[WatchOption] = []
        self.expect("[", "and options")
        while True:
            found.append(self.parse_option())
            while self.accept(","):
                found.append(self.parse_option())
            self.expect("]", "or a comma after the option")
            if not self.accept("["):
                return tuple(found)

    def parse_option(self) -> WatchOption:
        start = self.token.start
        name = self.expect_name("the name of an option").lower()
        value = None
        if self.accept(":"):
            value = (
                self.parse_expression() if name in EXPRESSION_VALUED_OPTIONS else self.parse_option_value()
            )
        return WatchOption(name, value, span=self.span_from(start))

    def parse_option_value(self) -> OptionValue | Expression:
        token, index = self.token, self.index
        if token.kind != "name" or token.symbol in ("TRUE", "FALSE", "NULL"):
            return self.parse_expression()
        if self.peek() in (",", "]") or (token.symbol in RESERVED_KEYWORDS and not self.at_expression_word()):
            self.advance()
            return OptionValue(token.text.lower(), span=token.span)
        if self.peek() == "(" and token.symbol not in ("NOT", "EXISTS"):
            arguments = self.parse_option_arguments()
            if arguments is not None:
                return OptionValue(token.text.lower(), arguments, span=self.span_from(token.start))
            self.seek(index)
        return self.parse_expression()

    def at_expression_word(self) -> bool:
        return self.token.symbol in ("NOT", "EXISTS") or self.peek() == "("

    def parse_option_arguments(self) -> tuple[OrderTerm, ...] | None:
        """`(t.priority DESC, t.id)`; None if the text is an expression that only starts like arguments."""
        depth = self.depth
        self.advance()
        try:
            self.expect("(")
            arguments = () if self.token.symbol == ")" else self.parse_order_terms()
            self.expect(")", "after the arguments")
        except ParseFailure:
            self.depth = depth
            return None
        return arguments if self.token.symbol in (",", "]") else None

    # --- deliveries -----------------------------------------------------------------------------------------------

    def parse_ack(self) -> Ack:
        start = self.advance().start
        delivery = self.parse_delivery_id()
        return Ack(delivery, span=self.span_from(start))

    def parse_nack(self) -> Nack:
        start = self.advance().start
        delivery = self.parse_delivery_id()
        options = self.parse_options() if self.token.symbol == "[" else ()
        return Nack(delivery, options, span=self.span_from(start))

    def parse_extend(self) -> Extend:
        start = self.advance().start
        delivery = self.parse_delivery_id()
        options = self.parse_options() if self.token.symbol == "[" else ()
        return Extend(delivery, options, span=self.span_from(start))

    def parse_redrive(self) -> Redrive:
        start = self.advance().start
        watch = self.accept("WATCH")
        target = self.parse_id_reference() if watch else self.parse_delivery_id()
        return Redrive(target, watch, span=self.span_from(start))

    def parse_delivery_id(self) -> Expression:
        """The id of a delivery: a string, a parameter or an id."""
        if self.token.kind == "string":
            return self.parse_literal()
        if self.token.kind == "param":
            return self.parse_parameter()
        if self.token.kind != "id":
            self.fail_expected('a delivery: "text", $parameter or #id')
        return self.parse_id_reference()

    # --- management -----------------------------------------------------------------------------------------------

    def parse_watch_management(self, in_match: bool = False) -> ManageWatch | AlterWatch:
        start = self.token
        if start.symbol not in ("PAUSE", "RESUME", "CANCEL", "ALTER"):
            self.fail_expected("PAUSE, RESUME, CANCEL or ALTER")
        self.advance()
        self.expect("WATCH", f"after {start.symbol}")
        handle = self.parse_watch_handle(in_match)
        if start.symbol != "ALTER":
            return ManageWatch(start.symbol, handle, span=self.span_from(start.start))
        self.expect("SET", "and the options to change")
        options = self.parse_options()
        return AlterWatch(handle, options, span=self.span_from(start.start))

    def parse_watch_handle(self, in_match: bool) -> Expression:
        """`#w`; in MATCH … DO also `s` or `s.id`."""
        token = self.token
        if token.kind == "id":
            return self.parse_id_reference()
        if not in_match:
            self.fail_expected("the id of a watch, as in #w")
        variable = Variable(self.expect_identifier("a variable or #id"), span=token.span)
        if not self.accept("."):
            return variable
        if self.token.symbol != "ID":
            self.fail_expected("`id`")
        name = self.advance().text
        return Attribute(variable, name, span=self.span_from(token.start))
