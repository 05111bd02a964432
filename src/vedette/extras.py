"""The extras of the wheel: which packages belong to each, and whether they are installed.

`pip install vedette` installs the engine, the server, the clients and the shell. External collections and searchable
folders need large packages, so each is an extra. Call `require_extra` or `require_packages` before such a package is
imported. The error then names the command that installs the extra, instead of a module that the user never heard of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Final

from vedette.errors import InstallationError

__all__ = [
    "EXTRAS",
    "install_command",
    "missing_extra_note",
    "missing_packages",
    "require_extra",
    "require_packages",
]

EXTRAS: Mapping[str, tuple[str, ...]] = {
    "pipeline": ("numpy", "pandas", "pyarrow", "pymongo", "pyspark"),
    "files": ("charset_normalizer", "numpy", "pypdf", "qdrant_client", "watchfiles", "wordllama"),
}
"""The packages of each extra by the names under which they are imported, as pyproject.toml declares them."""

_CONSEQUENCES: Final = {
    "pipeline": "External collections are not read",
    "files": "Watched folders are not searchable",
}


def missing_packages(extra: str) -> tuple[str, ...]:
    """Return the packages of an extra that cannot be imported. Nothing is loaded."""
    return tuple(package for package in EXTRAS[extra] if find_spec(package) is None)


def missing_extra_note(extra: str) -> str:
    """Return what does not work without the extra and how to install it, or an empty text if it is installed.

    For a command that works without the extra, while something that follows from it does not.
    """
    if not missing_packages(extra):
        return ""
    return f"{_CONSEQUENCES[extra]}: the extra '{extra}' is not installed, run {install_command(extra)}"


def install_command(extra: str) -> str:
    return f"pip install 'vedette[{extra}]'"


def require_extra(extra: str, feature: str) -> None:
    """Raise E0102 unless every package of the extra is installed. `feature` begins the sentence: "`wqm daemon`"."""
    require_packages(EXTRAS[extra], extra=extra, feature=feature)


def require_packages(packages: Sequence[str], *, extra: str, feature: str) -> None:
    """Raise E0102 unless these packages of the extra are installed."""
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        raise InstallationError(
            "E0102",
            f"{feature} requires the extra '{extra}' (not installed: {', '.join(missing)}): "
            f"run {install_command(extra)}",
            fields={"extra": extra, "missing": missing},
        )
