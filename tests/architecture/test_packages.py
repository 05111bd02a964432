"""Packages stay small and free of import cycles. docs/design/layers.md has the reasons."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.architecture.import_graph import cycles, import_graph
from tests.architecture.modules import Module, source_modules

MAX_CYCLE_MODULES = 3
MAX_FOLDER_MODULES = 25
UNCHECKED_PACKAGES = ("vedette.engine.",)
"""Packages whose cycles are removed with the rebuild of the commit path."""


def test_cycles_have_at_most_three_modules() -> None:
    found = [
        cycle
        for cycle in cycles(import_graph(source_modules()))
        if len(cycle) > MAX_CYCLE_MODULES and not all(name.startswith(UNCHECKED_PACKAGES) for name in cycle)
    ]
    assert not found, "\n".join(["import cycles:", *(" ".join(cycle) for cycle in found)])


def test_folders_have_at_most_25_modules() -> None:
    counts = Counter(
        module.path.rpartition("/")[0]
        for module in source_modules()
        if not module.path.endswith("__init__.py")
    )
    too_wide = {folder: count for folder, count in counts.items() if count > MAX_FOLDER_MODULES}
    assert not too_wide, f"split these folders into sub-packages: {too_wide}"


@pytest.mark.parametrize("type_only", [False, True])
def test_a_cycle_is_found(type_only: bool) -> None:
    header = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    " if type_only else ""
    modules = [
        Module(path="a/__init__.py", text=""),
        Module(path="a/one.py", text="from vedette.a import two"),
        Module(path="a/two.py", text="from vedette.b import Three"),
        Module(path="b.py", text=f"{header}from vedette.a.one import One"),
        Module(path="c.py", text="import vedette.b"),
    ]
    assert cycles(import_graph(modules)) == [["vedette.a.one", "vedette.a.two", "vedette.b"]]
