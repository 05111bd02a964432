"""Every example in README.md and docs/ has the output that the page states (format: tests/docs/examples.py)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.docs.examples import ExampleFailed, Page, blocks_of, render
from tests.support.paths import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_page(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Page(path.relative_to(ROOT), path.read_text()).run()


# The runner itself


def run(text: str) -> None:
    Page(Path("page.md"), text).run()


def test_python_examples_share_a_namespace_and_show_what_they_print() -> None:
    run("```python run\nx = 2\n```\ntext\n```python run\nprint(x + 1)\n```\n```output\n3\n```\n")


def test_example_without_run_is_only_parsed() -> None:
    run("```python\nraise SystemExit\n```\n```sh\nrm -rf /\n```\n")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "```python run\nprint(1)\n```\n```output\n2\n```\n",
            "the page says\n\n2\n\nbut the example gives\n\n1",
        ),
        ("```python run fails=E1001\nx = 1\n```\n", "page.md:1: E1001 was expected"),
        ("\n\n```sh run\nls\n```\n", "page.md:3: 'sh' examples cannot be run"),
    ],
)
def test_page_with_other_output_fails(text: str, words: str) -> None:
    with pytest.raises(ExampleFailed) as caught:
        run(text)
    assert words in str(caught.value)


def test_an_unexpected_error_names_the_example() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        run("# Title\n\n```python run fails=E2001\n1 / 0\n```\n")
    assert caught.value.__notes__ == ["in the example at page.md:3"]
    assert caught.traceback[-1].lineno + 1 == 4, "the traceback shows the line of the page"


def test_a_page_that_fails_leaves_no_process_behind() -> None:
    """A daemon that outlives its page would be reported by a later test and hide the cause."""
    page = Page(
        Path("page.md"),
        "```python run\nimport subprocess\n"
        "sleeper = subprocess.Popen(['sleep', '600'], stdout=subprocess.PIPE)\n```\n"
        "```python run\n1 / 0\n```\n",
    )
    with pytest.raises(ZeroDivisionError):
        page.run()
    sleeper = page.namespace["sleeper"]
    with sleeper:
        ended = sleeper.returncode is not None and sleeper.stdout.closed
        sleeper.kill()
    assert ended


def test_an_expected_error_is_compared_by_its_text() -> None:
    run("""
```python run fails=E9
class Failure(Exception):
    code = "E9"
raise Failure("no such thing")
```
```output
no such thing
```
""")


def test_blocks_are_found_with_their_words_and_lines() -> None:
    blocks = list(blocks_of("a\n```mew run fails=E2003\nMATCH\n```\n````\n```\ninner\n```\n````\n"))
    assert [(block.line, block.words, block.text) for block in blocks] == [
        (2, ("mew", "run", "fails=E2003"), "MATCH\n"),
        (5, (), "```\ninner\n```\n"),
    ]
    assert blocks[0].expected_error == "E2003"
    assert [block.runs for block in blocks] == [True, False]


@dataclass
class Rows:
    columns: list[str]
    rows: list[tuple[Any, ...]]


class Recorder:
    """A fake database and session that records its calls."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []

    def session(self) -> Recorder:
        return self

    def define(self, text: str) -> None:
        self.seen.append(("define", text))

    def run(self, text: str) -> list[Rows]:
        self.seen.append(("run", text))
        return [Rows(["n"], [(1,)])]

    def close(self) -> None:
        self.seen.append(("close", ""))


def test_mew_examples_go_to_one_database_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder()
    monkeypatch.setattr("vedette.open", {":memory:": recorder}.get, raising=False)
    run("```mew define\nnode T\n```\n```mew run\nMATCH t: T RETURN 1 AS n\n```\n```output\nn\n1\n```\n")
    assert recorder.seen == [("define", "node T\n"), ("run", "MATCH t: T RETURN 1 AS n\n"), ("close", "")]


def test_tables_are_shown_as_columns_and_rows() -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    results = [
        Rows(["t.title", "n"], [("a", None), ("b", 1.5)]),
        Rows([], []),
        Rows(["t", "at", "for"], [({"id": "x"}, moment, timedelta(seconds=2))]),
    ]
    assert render(results).splitlines() == [
        "t.title | n",
        "a | null",
        "b | 1.5",
        "",
        "t | at | for",
        '{"id": "x"} | 2026-01-02T03:04:05.000Z | 2s',
    ]
