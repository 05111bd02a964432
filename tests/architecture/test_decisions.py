"""The list of decisions names every record, in order, by its title."""

from __future__ import annotations

import re
from pathlib import Path

DECISIONS = Path(__file__).parents[2] / "docs" / "design" / "decisions"


def test_the_index_lists_every_record_with_its_title() -> None:
    records = sorted(path for path in DECISIONS.glob("*.md") if path.name != "index.md")
    titles = [path.read_text().split("\n", 1)[0].removeprefix("# ") for path in records]
    listed = re.findall(r"^- \[(.+)\]\((.+)\)$", (DECISIONS / "index.md").read_text(), flags=re.MULTILINE)
    assert listed == [(title, path.name) for title, path in zip(titles, records, strict=True)]


def test_records_have_different_numbers() -> None:
    numbers = [path.name[:4] for path in DECISIONS.glob("[0-9]*.md")]
    assert len(numbers) == len(set(numbers))
