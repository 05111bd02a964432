"""Raise the time limit: a property test runs many examples and can be slow on a loaded machine."""

from __future__ import annotations

from pathlib import Path

import pytest

_HERE = Path(__file__).parent
_SECONDS = 900


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _HERE in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_SECONDS))
