"""Code and documentation cite only what the repository contains."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.modules import ROOT

CITING = ("src", "tests", "benchmarks", "scripts", "docs", "examples")
TEXT_ENDINGS = {".py", ".md", ".js", ".html", ".css", ".story", ".txt", ".toml", ".sh", ""}
DECISIONS = ROOT / "docs" / "design" / "decisions"

# Written in pieces, so that this file does not cite what it looks for.
OUTSIDE = re.compile(
    "|".join(
        [
            r"\b(?:spec|seeds|house)/[a-z-]+(?:\.md|\b)",
            r"\bsurface" + r"\.md",
            r"\bthe " + r"seeds?\b",
            r"\b[Rr]uling" + r"s? [A-Z]?\d+",
            "\N{SECTION SIGN}" + r" ?\d",
        ]
    )
)
DECISION = re.compile(r"\bdecisions?/(\d{4}[a-z0-9-]*)")
PAGE = re.compile(r"\bdocs/[\w/-]+\.md\b")
PATH = re.compile(r"`((?:src/vedette|tests|benchmarks|scripts)/[\w/.-]+\.(?:py|story|md|txt))`")


def cited_files() -> Iterator[tuple[Path, int, str]]:
    for folder in CITING:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in TEXT_ENDINGS and path.is_file() and not _is_generated(path):
                for number, line in enumerate(path.read_text(errors="replace").splitlines(), start=1):
                    yield path, number, line


def _is_generated(path: Path) -> bool:
    return bool({"_compiled", "node_modules", "__pycache__", "vendor"} & set(path.parts))


def findings(pattern: re.Pattern[str]) -> Iterator[tuple[str, re.Match[str]]]:
    for path, number, line in cited_files():
        for found in pattern.finditer(line):
            yield f"{path.relative_to(ROOT)}:{number}", found


def test_nothing_outside_the_repository_is_cited() -> None:
    found = [f"{place}: {match[0]}" for place, match in findings(OUTSIDE)]
    assert not found, "cite docs/reference or a decision record instead:\n" + "\n".join(found)


def test_cited_decisions_exist() -> None:
    existing = {path.stem for path in DECISIONS.glob("*.md")}
    missing = [f"{place}: {match[0]}" for place, match in findings(DECISION) if match[1] not in existing]
    assert not missing, "\n".join(["no such decision record:", *missing])


@pytest.mark.parametrize("pattern", [PAGE, PATH], ids=["pages", "paths"])
def test_cited_files_exist(pattern: re.Pattern[str]) -> None:
    missing = [
        f"{place}: {match[0]}"
        for place, match in findings(pattern)
        if not (ROOT / match[match.lastindex or 0]).exists()
    ]
    assert not missing, "\n".join(["no such file:", *missing])


def test_decisions_have_one_form() -> None:
    for path in sorted(DECISIONS.glob("[0-9]*.md")):
        text = path.read_text()
        assert re.fullmatch(r"\d{4}-[a-z0-9-]+", path.stem), path.name
        assert text.startswith(f"# {path.stem[:4]}. "), (
            f"{path.name}: the title is '# {path.stem[:4]}. Title'"
        )
        assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ["Context", "Decision", "Consequences"], (
            path.name
        )
    numbers = [path.stem[:4] for path in DECISIONS.glob("[0-9]*.md")]
    assert len(numbers) == len(set(numbers)), "two decision records have one number"


@pytest.mark.parametrize(
    "text",
    [
        "see spec/" + "language.md",
        "as the " + "seeds say",
        "Ruling" + " 13",
        "\N{SECTION SIGN}" + "2.3",
        "ruling" + " B37",
    ],
)
def test_an_outside_citation_is_found(text: str) -> None:
    assert OUTSIDE.search(text)
