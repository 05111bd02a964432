"""How the conditions of a watch are classified: shared, key, range or residual."""

from __future__ import annotations

import pytest

from tests.support.shapes import shape_of


@pytest.mark.parametrize(
    ("condition", "keys", "range_operator", "residual"),
    [
        ('p.name = "Ann"', 1, None, 0),
        ('"Ann" = p.name', 1, None, 0),
        ('p.name = "Ann" AND p.age = 3', 2, None, 0),
        ("p.age > 3", 0, ">", 0),
        ("3 > p.age", 0, "<", 0),
        ("p.age > 3 AND p.age < 9", 0, ">", 1),
        ('p.name = "Ann" AND p.age <= 3', 1, "<=", 0),
        ('p.name != "Ann"', 0, None, 1),
        ('p.name = "Ann" OR p.age = 3', 0, None, 1),
        ("p.age / 0 = 3", 0, None, 1),
        ("p.name = p.boss.name", 0, None, 0),
    ],
)
def test_classification(condition: str, keys: int, range_operator: str | None, residual: int) -> None:
    shape = shape_of(f"WATCH p: Person WHERE {condition} RETURN p.name")
    found = (len(shape.key_expressions), shape.range[1] if shape.range else None, len(shape.residual_tests))
    assert found == (keys, range_operator, residual)
