"""Texts that no file of the repository may contain."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.architecture.modules import ROOT

# Written in pieces, so that this file does not contain what it searches for.
REGISTRIES = [
    ("pypi", "org"),
    ("pythonhosted", "org"),
    ("crates", "io"),
    ("npmjs", "org"),
    ("npmjs", "com"),
    ("yarnpkg", "com"),
    ("golang", "org"),
    ("maven", "org"),
    ("maven", "apache", "org"),
    ("debian", "org"),
    ("ubuntu", "com"),
    ("anaconda", "org"),
]
REGISTRY_HOST = re.compile(
    "|".join(r"\b" + re.escape(".".join(parts)) for parts in REGISTRIES), re.IGNORECASE
)

# Options by which a lock file would depend on one index or one machine.
INDEX_OPTION = re.compile(
    r"^\s*(?:-i|-f|--(?:extra-)?index-url|--find-links|--trusted-host)\b|file:/|@ *http", re.MULTILINE
)


def repository_files() -> list[Path]:
    """Return all files that are committed, or would be."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def test_no_file_names_a_package_registry() -> None:
    findings = [
        f"{path.relative_to(ROOT)}:{number}: {found[0]}"
        for path in repository_files()
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), start=1)
        if (found := REGISTRY_HOST.search(line))
    ]
    assert not findings, "name the package, not the host it comes from:\n" + "\n".join(findings)


@pytest.mark.parametrize("path", sorted(ROOT.glob("requirements*.lock")), ids=lambda path: path.name)
def test_lock_works_on_any_mirror(path: Path) -> None:
    text = path.read_text()
    assert not INDEX_OPTION.findall(text), "write it anew with `make lock`"
    requirements = re.findall(r"^[a-z0-9].*?(?=^[a-z0-9]|\Z)", text, re.MULTILINE | re.DOTALL)
    assert requirements
    for requirement in requirements:
        assert "--hash=sha256:" in requirement, f"no hash: {requirement}"


def test_patterns_find_examples() -> None:
    for parts in REGISTRIES:
        assert REGISTRY_HOST.search("see https://files." + ".".join(parts) + "/simple")
    assert INDEX_OPTION.search("a==1\n--find-links /somewhere\n")
    assert not INDEX_OPTION.search("a==1 \\\n    --hash=sha256:00\n")
