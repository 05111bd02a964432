"""docs/reference/settings.md lists exactly the settings, with their defaults and what is allowed."""

from __future__ import annotations

import re
import tomllib
from dataclasses import fields
from typing import Any

import pytest

from tests.support.paths import DOCS
from vedette.settings import Settings, validated

PAGE = (DOCS / "reference" / "settings.md").read_text(encoding="utf-8")
ROWS = {
    name: (default, allowed)
    for name, default, allowed in re.findall(
        r"^\| `([a-z_]+)` \| `([^`]+)` \| ([^|]+) \|", PAGE, re.MULTILINE
    )
}


def as_python(text: str) -> Any:
    value = tomllib.loads(f"value = {text}")["value"]
    return tuple(value) if isinstance(value, list) else value


def test_every_setting_is_listed_with_its_default() -> None:
    listed = {name: as_python(default) for name, (default, _) in ROWS.items()}
    assert listed == {f.name: f.default for f in fields(Settings)}
    assert {name: type(value) for name, value in listed.items()} == {
        f.name: type(f.default) for f in fields(Settings)
    }


@pytest.mark.parametrize("field", fields(Settings), ids=lambda field: field.name)
def test_documented_ranges_are_checked(field: Any) -> None:
    allowed = ROWS[field.name][1]
    words = tuple(re.findall(r'"(\w+)"', allowed))
    assert words == field.metadata["choices"]
    lowest = re.search(r"from (\d+)", allowed)
    assert (float(lowest[1]) if lowest else None) == field.metadata["low"]


def test_example_file_is_valid() -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    assert validated(tomllib.loads(example)).actor_types == ("Person", "Service")
