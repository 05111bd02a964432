"""Watches by number: a mapping that forgets its past."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vedette.watch.numbered_table import NumberedTable


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3000)), max_size=60), st.integers(0, 3000))
def test_it_is_a_dict(steps: list[tuple[bool, int]], made: int) -> None:
    table, twin = NumberedTable[str](), {}
    for number in range(1, made + 1):
        assert table.next_number() == number
        table[number] = twin[number] = f"watch {number}"
    for keep, number in steps:
        if keep:
            fresh = table.next_number()
            table[fresh] = twin[fresh] = "new"
        table.pop(number)
        twin.pop(number, None)
        assert table.get(number) is None
        assert number not in table
    assert len(table) == len(twin)
    assert list(table.values()) == list(twin.values())
    assert all(table[number] == item for number, item in twin.items())
    assert table.get(-1) is None
    assert table.get(1 << 40) is None


def test_those_who_came_and_went_cost_nothing() -> None:
    table = NumberedTable[str]()
    first = table.next_number()
    table[first] = "stays"
    for _ in range(100_000):
        number = table.next_number()
        table[number] = "goes"
        table.pop(number)
    assert list(table.values()) == ["stays"]
    assert len(table._blocks) <= 3
