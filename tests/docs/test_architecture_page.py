"""The modules that docs/design names exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "vedette"
PAGES = sorted((ROOT / "docs" / "design").glob("*.md"))
MODULE = re.compile(r"(?<![\w/.-])((?:[a-z0-9_]+/)*[a-z0-9_]+\.py)\b")


def modules_named_on(page: Path) -> list[str]:
    return MODULE.findall(page.read_text())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_named_modules_exist(page: Path) -> None:
    missing = [
        name
        for name in modules_named_on(page)
        if not (SOURCE / name).exists() and not (ROOT / name).exists() and not _is_unique_name(name)
    ]
    assert not missing, f"{page.name} names modules that do not exist: {missing}"


def _is_unique_name(name: str) -> bool:
    """A page may name a module by the end of its path, such as `group_commit.py`."""
    files = (*SOURCE.rglob("*.py"), *(ROOT / "tests").rglob("*.py"))
    return any(path.as_posix().endswith(f"/{name}") for path in files)


def test_the_architecture_page_names_modules() -> None:
    assert len(modules_named_on(ROOT / "docs" / "design" / "architecture.md")) > 50
