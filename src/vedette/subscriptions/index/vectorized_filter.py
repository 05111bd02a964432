"""Compile the shape of a filter to numpy operations that evaluate a million pairs of document and subscription in one
call.

The semantics are those of `vedette.filters.evaluator`, node by node: an operation without a result is a *fault*, AND
and OR absorb faults, `holds` turns them into false, and a filter that ends in a fault does not match. A property test
compares the two. Arithmetic, text functions and `contains` cannot be vectorized, because their cost is metered; such
filters are evaluated pair by pair.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from vedette.language.syntax.expressions import Attribute, Binary, Call, Conditional, Unary
from vedette.subscriptions.index.columns import (
    BOOL,
    MISSING,
    NO_PARENT,
    Bools,
    Column,
    compare_ordered,
    equal,
)
from vedette.subscriptions.shape import ConstantSlot, FieldPath, ListSlot, as_path

__all__ = ["ListColumn", "PairColumns", "Program", "Truth", "compile_vectorized"]


class Truth(NamedTuple):
    """The result per pair: true, fault, or false if it is neither."""

    true: Bools
    fault: Bools

    @property
    def false(self) -> Bools:
        return ~(self.true | self.fault)


class ListColumn(NamedTuple):
    """One list of scalars per pair, with the items of all lists in one column."""

    items: Column
    pairs: Any
    """For each item, the index of its pair."""


class PairColumns(Protocol):
    """Fields of documents and constants of subscriptions, one row per pair."""

    @property
    def size(self) -> int: ...
    def field(self, path: FieldPath) -> Column: ...
    def constant(self, index: int) -> Column: ...
    def list(self, index: int) -> ListColumn: ...


Program: TypeAlias = Callable[[PairColumns], Truth]
_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}


def compile_vectorized(tree: Any) -> Program | None:
    """Compile a tree with constant slots. Returns None if a part of it cannot be vectorized."""
    try:
        return _program(tree)
    except _NotVectorizable:
        return None


class _NotVectorizable(Exception):
    pass


def _program(node: Any) -> Program:
    match node:
        case ConstantSlot(index=index):
            return lambda pairs: _truth_of(pairs.constant(index))
        case Unary(op="NOT", operand=operand):
            return _negated(_program(operand))
        case Binary(op="AND", left=left, right=right):
            return _both(_program(left), _program(right))
        case Binary(op="OR", left=left, right=right):
            return _negated(_both(_negated(_program(left)), _negated(_program(right))))
        case Binary(op="IN", left=left, right=ListSlot(index=index)):
            return _member(_path(left), index)
        case Binary(op=op, left=left, right=ConstantSlot(index=index)) if op in _FLIPPED:
            return _comparison(op, _path(left), index)
        case Binary(op=op, left=ConstantSlot(index=index), right=right) if op in _FLIPPED:
            return _comparison(_FLIPPED[op], _path(right), index)
        case Call(name="holds", arguments=(condition,)):
            return _holds(_program(condition))
        case Call(name="has", arguments=(Attribute() as field,)):
            return _presence(_path(field))
        case Conditional(test=test, then=then, otherwise=otherwise):
            return _choice(_program(test), _program(then), _program(otherwise))
    path = _path(node)
    return lambda pairs: _truth_of(pairs.field(path))


def _path(node: Any) -> FieldPath:
    path = as_path(node)
    if path is None:
        raise _NotVectorizable
    return path


# --- leaves -----------------------------------------------------------------------------------------------------


def _truth_of(column: Column) -> Truth:
    """Convert a value in the place of a condition. A value that is not a boolean is a fault."""
    flags = column.kinds == BOOL
    return Truth(flags & (column.bits == 1), ~flags)


def _comparison(op: str, path: FieldPath, index: int) -> Program:
    def compare(pairs: PairColumns) -> Truth:
        values, constants = pairs.field(path), pairs.constant(index)
        missing = values.kinds <= MISSING
        if op in ("==", "!="):
            same = equal(values, constants)
            return Truth((same if op == "==" else ~same) & ~missing, missing)
        true, unordered = compare_ordered(op, values, constants)
        return Truth(true, unordered)

    return compare


def _member(path: FieldPath, index: int) -> Program:
    def member(pairs: PairColumns) -> Truth:
        values, (items, owners) = pairs.field(path), pairs.list(index)
        found = np.zeros(pairs.size, np.bool_)
        found[owners[equal(values.take(owners), items)]] = True
        missing = values.kinds <= MISSING
        return Truth(found & ~missing, missing)

    return member


def _presence(path: FieldPath) -> Program:
    def present(pairs: PairColumns) -> Truth:
        kinds = pairs.field(path).kinds
        return Truth(kinds > MISSING, kinds == NO_PARENT)

    return present


# --- logic ------------------------------------------------------------------------------------------------------


def _both(left: Program, right: Program) -> Program:
    def both(pairs: PairColumns) -> Truth:
        one, other = left(pairs), right(pairs)
        true = one.true & other.true
        return Truth(true, ~(true | one.false | other.false))

    return both


def _negated(operand: Program) -> Program:
    def negated(pairs: PairColumns) -> Truth:
        truth = operand(pairs)
        return Truth(truth.false, truth.fault)

    return negated


def _holds(condition: Program) -> Program:
    def holds(pairs: PairColumns) -> Truth:
        true = condition(pairs).true
        return Truth(true, np.zeros_like(true))

    return holds


def _choice(test: Program, then: Program, otherwise: Program) -> Program:
    def choose(pairs: PairColumns) -> Truth:
        tested, one, other = test(pairs), then(pairs), otherwise(pairs)
        true = (tested.true & one.true) | (tested.false & other.true)
        fault = tested.fault | (tested.true & one.fault) | (tested.false & other.fault)
        return Truth(true, fault)

    return choose
