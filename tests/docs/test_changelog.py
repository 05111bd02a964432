"""CHANGELOG.md keeps its form: kinds and parts in a fixed order, one short line for each change."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

CHANGELOG = Path(__file__).parents[2] / "CHANGELOG.md"
KINDS = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]
PARTS = [
    "Language",
    "Watches",
    "Queue",
    "Network and clients",
    "Collections",
    "Folders and search",
    "Command line",
    "Packaging",
]
MAX_CHARACTERS = 120
ENTRY = re.compile(r"- \*\*(?P<part>[^*]+):\*\* (?:\*\*Breaking:\*\* )?[A-Z`].*[.…]")


def form_errors(text: str) -> list[str]:
    """Return one sentence for each line that does not keep the form."""
    errors: list[str] = []
    kinds: list[int] = []
    parts: list[int] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if re.fullmatch(r"## \[(Unreleased|\d+\.\d+\.\d+\] - \d{4}-\d{2}-\d{2})\]?", line):
            kinds, parts = [], []
        elif line.startswith("### ") and line[4:] in KINDS:
            kinds.append(KINDS.index(line[4:]))
            parts = []
            if kinds != sorted(set(kinds)):
                errors.append(f"line {number}: the order is {', '.join(KINDS)}")
        elif (entry := ENTRY.fullmatch(line)) and entry["part"] in PARTS and kinds:
            parts.append(PARTS.index(entry["part"]))
            if parts != sorted(parts):
                errors.append(f"line {number}: the order is {', '.join(PARTS)}")
        elif line.startswith(("#", "-", " ")) and number > 1:
            errors.append(f"line {number}: not a heading or an entry: {line}")
        if len(line) > MAX_CHARACTERS:
            errors.append(f"line {number}: longer than {MAX_CHARACTERS} characters")
    return errors


def test_changelog_keeps_its_form() -> None:
    assert not form_errors(CHANGELOG.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        ("### Fixed\n### Added", "the order is Added"),
        ("### Added\n- **Queue:** One.\n- **Watches:** Two.", "the order is Language"),
        ("### Added\n- **Kitchen:** One.", "not a heading or an entry"),
        ("### Added\n- **Queue:** One\n  and more.", "not a heading or an entry"),
        ("### Improved", "not a heading or an entry"),
        (f"### Added\n- **Queue:** {'A' * 120}.", "longer than 120"),
    ],
)
def test_another_form_is_found(lines: str, error: str) -> None:
    (found, *_) = form_errors(f"# Changelog\n\n## [Unreleased]\n{lines}\n")
    assert error in found


def test_the_form_allows_releases_and_breaking_changes() -> None:
    text = (
        "# Changelog\n\n## [0.1.0] - 2027-01-31\n\n### Changed\n\n- **Queue:** **Breaking:** One. Do this.\n"
    )
    assert form_errors(text) == []
