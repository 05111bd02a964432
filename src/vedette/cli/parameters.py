"""`--param name=value`: literals of the language; any other value is text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import typer

from vedette.errors import VedetteError
from vedette.language.parser import parse_expression
from vedette.language.syntax.expressions import Expression, ListLiteral, Literal, Unary

__all__ = ["read_parameters", "read_value"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def read_parameters(given: Iterable[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for each in given:
        name, equals, text = each.partition("=")
        if not equals or not _NAME.fullmatch(name):
            raise typer.BadParameter(f"{each!r} is not NAME=VALUE, as in limit=10", param_hint="--param")
        values[name] = read_value(text)
    return values


def read_value(text: str) -> Any:
    """Parse a literal of the language. Any other text is returned as it is."""
    try:
        return _literal(parse_expression(text))
    except (VedetteError, ValueError):
        return text


def _literal(tree: Expression) -> Any:
    match tree:
        case Literal(value):
            return value
        case ListLiteral(items):
            return [_literal(item) for item in items]
        case Unary("-", Literal(int() | float() as number)) if not isinstance(number, bool):
            return -number
    raise ValueError("not a literal")
