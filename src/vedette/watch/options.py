"""Watch options: reading and checking the brackets of a WATCH statement (E8009).

Options are read after literals were lifted, so a number in an option is one of the statement's constants.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from vedette.errors import WatchError
from vedette.language.printer import print_value
from vedette.language.syntax.expressions import Expression, IdReference, OrderTerm
from vedette.language.syntax.statements import OptionValue, WatchOption
from vedette.values import duration_to_text

__all__ = [
    "ALTERABLE_OPTIONS",
    "MAX_DURATION",
    "OPTION_READERS",
    "InitialSpec",
    "OrderingSpec",
    "WatchOptions",
    "WindowSpec",
    "check_duration",
    "invalid_option",
    "read_options",
]

Evaluate = Callable[[Expression], Any]
"""Evaluates an option's expression with constants and parameters."""

MAX_DURATION = timedelta(days=36_500)
"""One hundred years."""

ALTERABLE_OPTIONS = frozenset({"buffer", "on_full", "delivery", "filter"})
"""Options that ALTER WATCH can change."""


@dataclass(frozen=True, slots=True)
class OrderingSpec:
    """`arrival`, `causal`, or `attribute` with its terms."""

    kind: str = "arrival"
    terms: tuple[OrderTerm, ...] = ()


@dataclass(frozen=True, slots=True)
class WindowSpec:
    """`none`, `tumbling` (interval = duration) or `sliding`."""

    kind: str = "none"
    duration: timedelta = timedelta(0)
    interval: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True)
class InitialSpec:
    """`full`, `none`, or `since` a tick."""

    kind: str = "full"
    tick: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOptions:
    """The options of a watch, with their documented defaults."""

    mode: str = "watch"
    group: str | None = None
    ordering: OrderingSpec = OrderingSpec()
    delivery: str = "best_effort"
    visibility: str = "committed"
    window: WindowSpec = WindowSpec()
    buffer: int = 1000
    on_full: str = "drop"
    ack_timeout: timedelta = timedelta(seconds=30)
    max_redeliveries: int = 3
    dead_letter: IdReference | None = None
    initial: InitialSpec = InitialSpec()
    filter: Expression | None = None
    deliver_on: str = "commit"
    serialize_by: Expression | None = None
    max_in_flight: int | None = None

    @property
    def has_expressions(self) -> bool:
        """True if an option contains an expression. Equal expressions may refer to different constants."""
        return bool(self.filter is not None or self.ordering.terms or self.serialize_by is not None)


def read_options(
    given: Sequence[WatchOption], evaluate: Evaluate, base: WatchOptions | None = None
) -> WatchOptions:
    """Read the options on top of `base` or the defaults. An invalid value raises E8009 with the allowed ones."""
    values: dict[str, Any] = {}
    for option in given:
        if option.name in values:
            raise invalid_option(option.name, "it is specified twice")
        reader = OPTION_READERS.get(option.name)
        if reader is None:
            raise invalid_option(
                option.name, f"there is no such option; known are {', '.join(sorted(OPTION_READERS))}"
            )
        values[option.name] = reader(option, evaluate)
    options = replace(base or WatchOptions(), **values)
    _check_together(options, values)
    return options


def _check_together(options: WatchOptions, given: Mapping[str, Any]) -> None:
    if options.delivery == "reliable" and given.get("on_full") == "drop":
        raise invalid_option(
            "on_full", "a reliable watch never drops; allowed with delivery: reliable are block, error"
        )
    if options.window.kind != "none" and options.mode == "consume":
        raise invalid_option(
            "window", "a consume watch delivers one by one; allowed with mode: consume is none"
        )


def invalid_option(name: str, why: str) -> WatchError:
    return WatchError("E8009", f"Invalid watch option '{name}': {why}", fields={"option": name})


# --- readers ----------------------------------------------------------------------------------------------------


def _one_of(*allowed: str) -> Callable[[WatchOption, Evaluate], str]:
    def read(option: WatchOption, evaluate: Evaluate) -> str:
        value = option.value
        if isinstance(value, OptionValue) and not value.arguments and value.name in allowed:
            return value.name
        raise invalid_option(option.name, f"allowed are {', '.join(allowed)}")

    return read


def _integer(low: int) -> Callable[[WatchOption, Evaluate], int]:
    def read(option: WatchOption, evaluate: Evaluate) -> int:
        value = _value(option, evaluate)
        if type(value) is int and value >= low:
            return value
        kind = "a positive integer" if low == 1 else f"an integer of at least {low}"
        raise invalid_option(option.name, f"allowed is {kind}, got {print_value(value)}")

    return read


def _string(option: WatchOption, evaluate: Evaluate) -> str:
    value = _value(option, evaluate)
    if isinstance(value, str) and value:
        return value
    raise invalid_option(option.name, f"allowed is a non-empty String, got {print_value(value)}")


def _duration(option: WatchOption, evaluate: Evaluate) -> timedelta:
    return check_duration(option.name, _value(option, evaluate))


def check_duration(name: str, value: Any) -> timedelta:
    """Check a lease, delay or window: a positive Duration of at most `MAX_DURATION`."""
    if isinstance(value, timedelta) and timedelta(0) < value <= MAX_DURATION:
        return value
    allowed = f"a Duration above zero such as 30s, at most {duration_to_text(MAX_DURATION)}"
    raise invalid_option(name, f"allowed is {allowed}, got {print_value(value)}")


def _expression(option: WatchOption, evaluate: Evaluate) -> Expression:
    if option.value is None or isinstance(option.value, OptionValue):
        raise invalid_option(option.name, "allowed is an expression over the pattern's variables")
    return option.value


def _reference(option: WatchOption, evaluate: Evaluate) -> IdReference:
    if isinstance(option.value, IdReference):
        return option.value
    raise invalid_option(option.name, "allowed is a reference to a node, such as #dlq")


def _value(option: WatchOption, evaluate: Evaluate) -> Any:
    if option.value is None or isinstance(option.value, OptionValue):
        return option.value.name if isinstance(option.value, OptionValue) else None
    return evaluate(option.value)


def _ordering(option: WatchOption, evaluate: Evaluate) -> OrderingSpec:
    value = option.value
    if isinstance(value, OptionValue):
        if value.name in ("arrival", "causal") and not value.arguments:
            return OrderingSpec(value.name)
        if value.name == "attribute" and value.arguments:
            return OrderingSpec("attribute", value.arguments)
    raise invalid_option(option.name, "allowed are arrival, causal, attribute(expression [ASC|DESC], …)")


def _window(option: WatchOption, evaluate: Evaluate) -> WindowSpec:
    value = option.value
    if isinstance(value, OptionValue):
        spans = [check_duration(option.name, evaluate(term.expression)) for term in value.arguments]
        if value.name == "none" and not spans:
            return WindowSpec()
        if value.name == "tumbling" and len(spans) == 1:
            return WindowSpec("tumbling", spans[0], spans[0])
        if value.name == "sliding" and len(spans) == 2:
            return WindowSpec("sliding", *spans)
    raise invalid_option(option.name, "allowed are none, tumbling(duration), sliding(duration, interval)")


def _initial(option: WatchOption, evaluate: Evaluate) -> InitialSpec:
    value = option.value
    if isinstance(value, OptionValue):
        if value.name in ("full", "none") and not value.arguments:
            return InitialSpec(value.name)
        if value.name == "since" and len(value.arguments) == 1:
            tick = evaluate(value.arguments[0].expression)
            if type(tick) is int and tick >= -1:
                return InitialSpec("since", tick)
    raise invalid_option(option.name, "allowed are full, none, since(tick) with a tick of at least -1")


def _branching(option: WatchOption, evaluate: Evaluate) -> None:
    raise invalid_option(option.name, "branching is not available; leave it out")


OPTION_READERS: Mapping[str, Callable[[WatchOption, Evaluate], Any]] = {
    "mode": _one_of("watch", "consume"),
    "group": _string,
    "ordering": _ordering,
    "delivery": _one_of("best_effort", "reliable"),
    "visibility": _one_of("committed", "immediate"),
    "window": _window,
    "buffer": _integer(1),
    "on_full": _one_of("drop", "block", "error"),
    "ack_timeout": _duration,
    "max_redeliveries": _integer(0),
    "dead_letter": _reference,
    "initial": _initial,
    "filter": _expression,
    "deliver_on": _one_of("tick", "commit"),
    "branch": _branching,
    "branches": _branching,
    "serialize_by": _expression,
    "max_in_flight": _integer(1),
}
