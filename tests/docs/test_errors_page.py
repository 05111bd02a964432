"""docs/reference/errors.md lists exactly the codes of errors.CODES, each under the words of a class that exists."""

from __future__ import annotations

import re

from tests.support.paths import DOCS
from vedette import errors

PAGE = (DOCS / "reference" / "errors.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `(E\d{4})` \| `([A-Z_]+)` \|(.*)$", PAGE, re.MULTILINE)
HEADINGS = re.findall(r"^## ([a-z ]+?)(?::[^`\n]*| )\(`(\w+)`\)$", PAGE, re.MULTILINE)


def test_every_code_is_listed_once_with_its_name() -> None:
    assert len(ROWS) == len({code for code, *_ in ROWS}), "a code is listed twice"
    assert {code: name for code, name, _ in ROWS} == dict(errors.CODES)


def test_every_class_has_a_heading_with_its_words() -> None:
    classes = [
        getattr(errors, name) for name in errors.__all__ if name.endswith(("Error", "Violation", "Statement"))
    ]
    expected = {(kind.category, kind.__name__) for kind in classes if kind is not errors.VedetteError}
    assert set(HEADINGS) == expected


def test_retryable_codes_are_marked() -> None:
    assert {code for code, _, rest in ROWS if "**Retryable**" in rest} == errors.RETRYABLE
