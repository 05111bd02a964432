"""Read the lock files, and find what a lock lacks according to the metadata of the installed packages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

__all__ = ["LockedPackage", "applicable", "missing_requirements", "read_lock"]

HASH = re.compile(r"--hash=(\S+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedPackage:
    """One entry of a lock file."""

    requirement: Requirement
    """Name, extras, version and marker, as written."""
    hashes: tuple[str, ...]

    @property
    def name(self) -> str:
        return canonicalize_name(self.requirement.name)

    @property
    def version(self) -> str | None:
        """The pinned version; None if the entry allows more than one."""
        pinned = [specifier for specifier in self.requirement.specifier if specifier.operator == "=="]
        if len(self.requirement.specifier) != 1 or not pinned or "*" in pinned[0].version:
            return None
        return pinned[0].version


def read_lock(path: Path) -> list[LockedPackage]:
    packages = []
    for line in path.read_text().replace("\\\n", " ").splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            text = HASH.sub("", line).strip()
            packages.append(LockedPackage(requirement=Requirement(text), hashes=tuple(HASH.findall(line))))
    return packages


def applicable(packages: Iterable[LockedPackage]) -> dict[str, LockedPackage]:
    """Return the packages that this platform and this Python install, by name."""
    return {
        package.name: package
        for package in packages
        if package.requirement.marker is None or package.requirement.marker.evaluate()
    }


def missing_requirements(roots: Iterable[Requirement], locked: dict[str, LockedPackage]) -> Iterator[str]:
    """Follow every requirement from `roots`, extras included. Yield a sentence for each that the lock does not meet."""
    pending = [(requirement, "the project") for requirement in roots]
    visited: set[tuple[str, str]] = set()
    while pending:
        requirement, required_by = pending.pop()
        name = canonicalize_name(requirement.name)
        package = locked.get(name)
        if package is None:
            yield f"{required_by} requires {requirement}, which is not locked"
            continue
        if package.version is None or not requirement.specifier.contains(package.version, prereleases=True):
            yield f"{required_by} requires {requirement}, but {package.requirement} is locked"
        if missing := requirement.extras - package.requirement.extras:
            yield f"{required_by} requires {requirement}, but {name} is locked without {', '.join(sorted(missing))}"
        for extra in {"", *requirement.extras}:
            if (name, extra) not in visited:
                visited.add((name, extra))
                pending += [(needed, name) for needed in _dependencies(name, extra)]


def _dependencies(name: str, extra: str) -> Iterator[Requirement]:
    """Yield what an installed package requires here with one of its extras ("": without any)."""
    for text in distribution(name).requires or []:
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            yield requirement
