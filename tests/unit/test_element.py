"""Versions of elements."""

from __future__ import annotations

from vedette.element import Element


def test_repr_shows_type_targets_id_and_values() -> None:
    assert repr(Element("t1", "Task", ("a", 1))) == "<Task t1 ('a', 1)>"
    assert repr(Element("e1", "assigned", (), ("t1", "p1"))) == "<assigned(t1, p1) e1 ()>"


def test_versions_are_compared_by_identity() -> None:
    first, second = Element("t1", "Task", ()), Element("t1", "Task", ())
    assert first != second
    assert len({first, second}) == 2
