"""Encodings, content types, and the text and sections of every type."""

from __future__ import annotations

import codecs

import pytest

from tests.support.pdf_file import pdf_of
from vedette.errors import IngestError
from vedette.search.content_type import ContentType, decode_text, detect_content_type
from vedette.search.document import Document
from vedette.search.extraction import extract


def parts(document: Document) -> list[tuple[int, str]]:
    """Return position and title of each section."""
    return [(document.positions[part.start], part.title) for part in document.sections]


@pytest.mark.parametrize(
    ("path", "data", "kind"),
    [
        ("a.txt", b"x", ContentType.PLAIN),
        ("README", b"x", ContentType.PLAIN),
        ("a.MD", b"x", ContentType.MARKDOWN),
        ("a.py", b"x", ContentType.CODE),
        ("a.tsx", b"x", ContentType.CODE),
        ("a.json", b"{}", ContentType.JSON),
        ("a.tsv", b"x", ContentType.CSV),
        ("a.htm", b"x", ContentType.HTML),
        ("page", b"\n <!DOCTYPE html><p>x", ContentType.HTML),
        ("a.txt", b"%PDF-1.7", ContentType.PDF),
    ],
)
def test_content_types(path: str, data: bytes, kind: ContentType) -> None:
    assert detect_content_type(path, data) is kind


@pytest.mark.parametrize(
    "data",
    [
        "Grüße, 你好".encode(),
        codecs.BOM_UTF8 + "Grüße, 你好".encode(),
        "Grüße, 你好".encode("utf-16"),
        "Grüße, 你好".encode("utf-32"),
    ],
)
def test_encodings(data: bytes) -> None:
    assert decode_text("f", data) == "Grüße, 你好"


def test_utf_16_without_a_byte_order_mark_and_legacy_encodings() -> None:
    text = "The quick brown fox jumps over the lazy dog. " * 5
    assert decode_text("f", text.encode("utf-16-le")) == text
    assert decode_text("f", text.encode("utf-16-be")) == text
    german = "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich. Füße, Bäume, Straße. " * 5
    assert decode_text("f", german.encode("latin-1")) == german


@pytest.mark.parametrize("data", [b"\x7fELF\x02\x01\x00\x00\x00\x01", codecs.BOM_UTF16_LE + b"\x00\xd8\x00"])
def test_file_that_is_not_text_is_rejected(data: bytes) -> None:
    with pytest.raises(IngestError, match="E4512"):
        decode_text("f", data)


def test_markdown() -> None:
    text = "# One\ntext\n```sh\n# no heading\n```\n## Two ##\n\nThree\n-----\nx\n### Four\n# Five\n"
    document = extract("a.md", text.encode(), ContentType.MARKDOWN)
    assert parts(document) == [
        (1, "One"),
        (6, "One > Two"),
        (8, "One > Three"),
        (11, "One > Three > Four"),
        (12, "Five"),
    ]
    assert document.lines == tuple(text.removesuffix("\n").split("\n"))


def test_python() -> None:
    text = """import x

@x.y
@z
class A:
    def m(self): ...
    class B:
        async def n(self): ...

def f(): ...
"""
    assert parts(extract("a.py", text.encode(), ContentType.CODE)) == [
        (3, "class A"),
        (6, "def A.m"),
        (7, "class A.B"),
        (8, "def A.B.n"),
        (10, "def f"),
    ]


@pytest.mark.parametrize(
    ("path", "text", "titles"),
    [
        ("broken.py", "def f(:\n  x\nclass A(\n", ["def f", "class A"]),
        (
            "a.ts",
            "import x\nexport async function go() {\n}\nexport const y = 1\n  const inner = 2\n",
            ["go", "y"],
        ),
        ("a.go", "package x\nfunc (s *Store) Put(k string) {\n}\ntype Store struct {\n", ["Put", "Store"]),
        (
            "a.rs",
            "use x;\npub(crate) async fn go() {\n}\nimpl Store {\n    fn inner() {}\n}\n",
            ["go", "Store"],
        ),
        (
            "a.c",
            "#include <x>\nint x;\nstatic int *go(int a) {\n  if (a) {\n  }\n}\nstruct s {\n",
            ["go", "s"],
        ),
        ("a.sh", "x=1\ngo() {\n}\nfunction stop {\n", ["go", "stop"]),
    ],
)
def test_sections_of_other_languages(path: str, text: str, titles: list[str]) -> None:
    assert [title for _, title in parts(extract(path, text.encode(), ContentType.CODE))] == titles


def test_html() -> None:
    text = """<html><head><title>Page</title><style>p { color: red }</style></head>
<body><h1>Big  <b>thing</b></h1>
<p>One &amp; two
   <i>three</i></p><script>alert("x")</script>
<h2>Small</h2><ul><li>a<li>b</ul>
<table><tr><td>1<td>2</table></body></html>"""
    document = extract("a.html", text.encode(), ContentType.HTML)
    assert document.lines == ("Page", "Big thing", "One & two three", "Small", "a", "b", "1", "2")
    assert document.positions == (1, 2, 3, 5, 5, 5, 6, 6)
    assert parts(document) == [(2, "Big thing"), (5, "Big thing > Small")]


def test_json() -> None:
    text = '{\n  "name": "x",\n  "deep": {\n    "a": 1\n  },\n  "list": [\n    2\n  ]\n}\n'
    document = extract("a.json", text.encode(), ContentType.JSON)
    assert parts(document) == [(2, "name"), (3, "deep"), (6, "list")]
    assert document.positions[-1] == 9
    packed = ('{"a": [' + ", ".join(map(str, range(300))) + '], "b": "end"}').encode()
    laid_out = extract("a.json", packed, ContentType.JSON)
    assert set(laid_out.positions) == {1}
    assert [title for _, title in parts(laid_out)] == ["a", "b"]
    with pytest.raises(IngestError, match="is not valid JSON"):
        extract("a.json", b"{", ContentType.JSON)
    with pytest.raises(IngestError, match="E4512"):
        extract("a.json", b"[" * 100_000, ContentType.JSON)


def test_json_with_a_lone_surrogate() -> None:
    data = b'{"a": "\\ud800 ' + b"words " * 100 + b'"}'
    document = extract("a.json", data, ContentType.JSON)
    "\n".join(document.lines).encode()
    assert "? words" in document.lines[1]


def test_csv() -> None:
    text = 'name,note\nAda,"first\nprogrammer"\nAlan,,extra\n'
    document = extract("a.csv", text.encode(), ContentType.CSV)
    assert document.lines == (
        "name, note",
        "name: Ada, note: first programmer",
        "name: Alan, column 3: extra",
    )
    assert document.positions == (1, 2, 4)
    assert extract("a.csv", b"a;b\n1;2\n", ContentType.CSV).lines == ("a, b", "a: 1, b: 2")


def test_pdf() -> None:
    document = extract("a.pdf", pdf_of(["Hello first page", "", "Third page"]), ContentType.PDF)
    assert (document.position_unit, document.lines, document.positions) == (
        "page",
        ("Hello first page", "Third page"),
        (1, 3),
    )
    assert parts(document) == [(1, "page 1"), (3, "page 3")]


@pytest.mark.parametrize(
    "data", [b"%PDF-1.7", b"%PDF-1.7\n" + b"\xff" * 1_000, pdf_of(["text"])[:200], pdf_of([""])]
)
def test_pdf_without_text_is_rejected(data: bytes) -> None:
    with pytest.raises(IngestError, match="E4512"):
        extract("a.pdf", data, ContentType.PDF)


@pytest.mark.parametrize(
    "kind", [kind for kind in ContentType if kind not in {ContentType.PDF, ContentType.JSON}]
)
@pytest.mark.parametrize(
    "data", [b"", b"\n", b"   \n\n\t\n", b"one line", b"\r\n\r", b"```", b"<", b"<p", b'"', b"#"]
)
def test_any_text_can_be_extracted(kind: ContentType, data: bytes) -> None:
    document = extract("f", data, kind)
    assert len(document.lines) == len(document.positions)
    assert all(part.start < len(document.lines) for part in document.sections)
