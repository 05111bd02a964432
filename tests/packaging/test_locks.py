"""The locks are complete: set-up resolves nothing and downloads only what they name."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.packaging.locks import LockedPackage, applicable, missing_requirements, read_lock
from tests.support.paths import ROOT

LOCKS = sorted(ROOT.glob("requirements*.lock"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

# `make lock` is the one command that resolves, and it runs when a maintainer changes the locks.
INSTALLING_SCRIPTS = sorted(
    path for path in (ROOT / "scripts").iterdir() if path.is_file() and path.name != "lock"
)
PIP_COMMAND = re.compile(r"^\s*(?:.*-m )?pip (install|download|wheel)\b.*$", re.MULTILINE)


def roots(*, extras: tuple[str, ...] = (), groups: tuple[str, ...] = ()) -> list[Requirement]:
    """Return what pyproject.toml declares, with these extras and dependency groups."""
    declared = list(PROJECT["project"]["dependencies"])
    for extra in extras:
        declared += PROJECT["project"]["optional-dependencies"][extra]
    for group in groups:
        declared += PROJECT["dependency-groups"][group]
    return [Requirement(text) for text in declared]


CONTENTS = {
    "requirements-base.lock": roots(groups=("build",)),
    "requirements.lock": roots(extras=("pipeline", "files"), groups=("build",)),
    "requirements-dev.lock": roots(extras=("pipeline", "files"), groups=("build", "test", "check")),
}
"""Lock by lock what must be in it. The packages of the benchmarks are not installed where the tests run."""


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.name)
def test_every_entry_is_pinned_and_hashed(path: Path) -> None:
    packages = read_lock(path)
    assert packages
    for package in packages:
        assert package.version is not None, f"{package.requirement} allows more than one version"
        assert package.hashes, f"{package.requirement} has no hash"
        assert all(text.startswith("sha256:") for text in package.hashes)


@pytest.mark.parametrize("name", CONTENTS)
def test_lock_contains_every_dependency_and_extra(name: str) -> None:
    missing = list(missing_requirements(CONTENTS[name], applicable(read_lock(ROOT / name))))
    assert not missing, "run `make lock`:\n" + "\n".join(missing)


def test_installed_versions_equal_the_lock() -> None:
    """The check above reads the metadata of installed packages, so they must be the locked ones."""
    locked = applicable(read_lock(ROOT / "requirements-dev.lock"))
    found = {name: (package.version, version(name)) for name, package in locked.items()}
    assert not {name: pair for name, pair in found.items() if pair[0] != pair[1]}


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.name)
def test_locks_agree_on_versions(path: Path) -> None:
    """Set-up installs requirements-base.lock first, then another lock over it."""

    def versions(lock: Path) -> dict[tuple[str, str], str | None]:
        return {
            (package.name, str(package.requirement.marker)): package.version for package in read_lock(lock)
        }

    runtime, other = versions(ROOT / "requirements.lock"), versions(path)
    assert {key: runtime[key] for key in runtime.keys() & other.keys()} == {
        key: other[key] for key in runtime.keys() & other.keys()
    }


@pytest.mark.parametrize("path", INSTALLING_SCRIPTS, ids=lambda path: path.name)
def test_scripts_never_let_pip_resolve(path: Path) -> None:
    for command in PIP_COMMAND.finditer(path.read_text()):
        line = command[0].strip()
        assert "--no-deps" in line, f"pip would resolve: {line}"
        assert "--require-hashes" in line or "--no-index" in line, f"pip would take any file: {line}"
        # Building from source in isolation downloads the newest build tools, which no lock names.
        assert "--no-build-isolation" in line or "--only-binary :all:" in line, f"not from the lock: {line}"


def test_setup_calls_pip() -> None:
    """Otherwise the test above checks nothing."""
    assert len(PIP_COMMAND.findall((ROOT / "scripts" / "setup").read_text())) == 3


def test_a_gap_in_a_lock_is_found() -> None:
    locked = applicable(read_lock(ROOT / "requirements-dev.lock"))
    coverage = locked["coverage"]
    assert coverage.requirement.extras == {"toml"}
    bare = LockedPackage(requirement=Requirement(f"coverage=={coverage.version}"), hashes=coverage.hashes)
    old = LockedPackage(requirement=Requirement("coverage[toml]==1.0"), hashes=coverage.hashes)
    gaps = {
        "which is not locked": {name: package for name, package in locked.items() if name != "coverage"},
        "is locked without toml": {**locked, "coverage": bare},
        "coverage[toml]==1.0 is locked": {**locked, "coverage": old},
    }
    for sentence, damaged in gaps.items():
        findings = list(missing_requirements([Requirement("pytest-cov")], damaged))
        assert len(findings) == 1
        assert findings[0].startswith("pytest-cov requires coverage[toml]")
        assert sentence in findings[0]
