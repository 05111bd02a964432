"""Small files that are expensive to extract: time and text must grow linearly with the file size."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from time import thread_time

import pytest

from tests.support.pdf_file import pdf_of
from vedette.errors import IngestError
from vedette.search.content_type import ContentType, detect_content_type
from vedette.search.document import Document
from vedette.search.extraction import extract

TIMES = 4
ROOM = 2.5
"""Tolerance for a busy machine. TIMES as much text takes TIMES as long if linear, TIMES * TIMES if quadratic."""


def extracted(path: str, text: str) -> Document:
    data = text.encode()
    return extract(path, data, detect_content_type(path, data))


def seconds(path: str, text: str) -> float:
    """Return the smallest CPU time of this thread in a few runs."""
    tries = []
    for _ in range(3):
        began = thread_time()
        extracted(path, text)
        tries.append(thread_time() - began)
    return min(tries)


SLOW: dict[str, tuple[str, int, Callable[[int], str]]] = {
    "a heading with a gap": ("a.md", 500, lambda n: "# a" + " " * n + "x"),
    "a heading with marks and gaps": ("a.md", 500, lambda n: "# a" + " #" * n + "x"),
    "escaped quotes": ("a.py", 8_000, lambda n: '"' + '\\"' * n),
    "unclosed quotes": ("a.py", 8_000, lambda n: "'''" + '"\\' * n),
    "a call with a gap": ("a.c", 8_000, lambda n: "f(" + " " * n + ";"),
    "words and gaps": ("a.java", 8_000, lambda n: "a* " * n + ";"),
    "a brace and a gap": ("a.c", 8_000, lambda n: "f {" + " " * n + ";"),
    "an unclosed receiver": ("a.go", 20_000, lambda n: "func" + " (" * n),
    "words before a function": ("a.rs", 20_000, lambda n: "async " * n + ";"),
    "a name and a gap": ("a.sh", 20_000, lambda n: "function a" + " " * n + "x"),
    "exports and gaps": ("a.ts", 20_000, lambda n: "export" + " " * n + "x"),
    "unclosed comments": ("a.html", 4_000, lambda n: "<!--" * n),
    "unclosed tags": ("a.html", 4_000, lambda n: "<a " * n),
    "unclosed attributes": ("a.html", 4_000, lambda n: "<a b='" * n + '<a b="' * n),
    "unclosed ends": ("a.html", 4_000, lambda n: "</a " * n),
    "unclosed declarations": ("a.html", 4_000, lambda n: "<!x <?" * n),
    "unclosed sections": ("a.html", 4_000, lambda n: "<![CDATA[" * n),
    "unclosed scripts": ("a.html", 4_000, lambda n: "<script></scrip" * n),
    "blanks before words": ("a.html", 2_000, lambda n: "<b> </b>" * n + "<b>x</b>" * n),
    "many columns and many rows": ("a.csv", 2_000, lambda n: "a," * n + "\n" + "a\n" * n),
}


@pytest.mark.parametrize(("path", "size", "text"), SLOW.values(), ids=SLOW)
def test_extraction_time_is_linear_in_the_file_size(path: str, size: int, text: Callable[[int], str]) -> None:
    least = 0.0005  # a shorter time is not worth measuring

    def is_linear() -> bool:
        return seconds(path, text(TIMES * size)) < ROOM * TIMES * max(seconds(path, text(size)), least)

    assert any(
        is_linear() for _ in range(5)
    )  # a busy machine disturbs some rounds; quadratic work fails all of them


LARGE = {
    "one long column": ("a.csv", "h" * 50_000 + "\n" + "a\n" * 500),
    "long columns": ("a.csv", ",".join(["h" * 1_000] * 100) + "\n" + ("a," * 100 + "\n") * 500),
    "a long heading": ("a.md", "# " + "h" * 50_000 + "\n" + "## a\n" * 500),
    "a long underlined heading": ("a.md", "h" * 50_000 + "\n===\n" + "## a\n" * 500),
    "a long heading of a page": ("a.html", "<h1>" + "h" * 50_000 + "</h1>" + "<h2>a</h2>" * 500),
    "a long class": ("a.py", "class " + "h" * 50_000 + ":\n" + " def a(): ...\n" * 500),
    "many classes in each other": (
        "a.py",
        "".join(f"{' ' * depth}class {'A' * 60}:\n" for depth in range(200))
        + (" " * 200 + "def a(): ...\n") * 500,
    ),
    "a list in lists": ("a.json", "[" * 300 + ",".join("1" * 30_000) + "]" * 300),
}


@pytest.mark.parametrize(("path", "text"), LARGE.values(), ids=LARGE)
def test_extracted_text_is_not_many_times_the_file_size(path: str, text: str) -> None:
    document = extracted(path, text)
    found = sum(map(len, document.lines)) + sum(len(part.title) for part in document.sections)
    assert found < 25 * len(text)


def test_long_titles_are_truncated() -> None:
    (title,) = [part.title for part in extracted("a.md", f"# {'long ' * 100}\n").sections]
    assert title == ("long " * 100)[:119] + "…"


def test_deeply_nested_json_is_not_reformatted() -> None:
    text = "[" * 300 + ",".join("1" * 1_000) + "]" * 300
    assert extracted("a.json", text).lines == (text,)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("a <b>c <!-- d <p> e", ("a c",)),
        ("a<!-->b<!--->c<!-- - -- -->d<!-- x --!>e", ("abcde",)),
        ("1 < 2 <3 <= &lt; a<p>b", ("1 < 2 <3 <= < a", "b")),
        ("<p title='>' x=\">\" y=>a</p><p don't>b", ("a", "b")),
        ('a<p x="b>c</p>d', ("a", "c", "d")),
        ("a<script>if (b<c) '</p>'</SCRIPT >d<style/>e<style>f", ("ade",)),
        ("a<![CDATA[ b>c ]]>d<![if IE]>e<?php f ?>g</ h>i", ("adegi",)),
        ("a<br/>b<svg/>c<svg><p>d</svg>e", ("a", "bc", "e")),
    ],
)
def test_unusual_html_is_read_as_browsers_do(text: str, lines: tuple[str, ...]) -> None:
    assert extracted("a.html", text).lines == lines


def test_pdf_with_excessive_drawing_is_rejected() -> None:
    """About 2 kB that unpack to a page of 60,000 words, or refer to one page 3,000 times."""
    drawn = zlib.compress(b"BT /F1 12 Tf " + b"(a) Tj " * 60_000 + b"ET", 9)
    page = pdf_of(["text"])
    before, _, after = page.partition(b"<< /Length")
    stream = b"<< /Filter /FlateDecode /Length %d >>\nstream\n%s\nendstream" % (len(drawn), drawn)
    dense = before + stream + after.partition(b"endstream")[2]
    repeated = page.replace(b"[4 0 R] /Count 1", b"[" + b"4 0 R " * 3_000 + b"] /Count 3000")
    for data in (dense, repeated):
        with pytest.raises(IngestError, match=r"E4512.*more drawing steps"):
            extract("a.pdf", data, ContentType.PDF)


def test_pdf_with_many_pages_is_read() -> None:
    document = extract("a.pdf", pdf_of([f"page {number}" for number in range(300)]), ContentType.PDF)
    assert len(document.lines) == 300
