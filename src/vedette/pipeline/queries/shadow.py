"""Another version of Vedette beside this one: where it is, and how a program of it is run.

A candidate is a virtual environment that has it, a wheel, or a folder that holds the package (a checkout will do).
Of the last two only Vedette itself is taken; what it depends on is what is installed here.
"""

from __future__ import annotations

import os
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from vedette.errors import PipelineError

__all__ = ["Candidate", "find_candidate"]


class Candidate(NamedTuple):
    python: str
    path: Path | None
    """What stands first on its path of modules; None for an environment that has it installed."""

    def command(self, *words: str) -> Sequence[str]:
        return [self.python, "-m", "vedette", *words]

    def environment(self, base: Mapping[str, str] | None = None) -> dict[str, str]:
        """Of its process, and of the workers that it starts."""
        found = dict(os.environ if base is None else base)
        if self.path is not None:
            found["PYTHONPATH"] = os.pathsep.join(filter(None, (str(self.path), found.get("PYTHONPATH"))))
        return found


def find_candidate(given: Path, work: Path) -> Candidate:
    """E6303 when it is none of the three. A wheel is unpacked in `work`."""
    if given.suffix == ".whl" and given.is_file():
        return Candidate(sys.executable, _unpack_wheel(given, work))
    if (given / "bin" / "python").exists():
        return Candidate(str(given / "bin" / "python"), None)
    for folder in (given, given / "src"):
        if (folder / "vedette" / "__init__.py").is_file():
            return Candidate(sys.executable, folder.absolute())
    text = (
        f"{given} is no candidate: give a wheel (.whl), a virtual environment (with bin/python), "
        "or a folder that holds the package vedette"
    )
    raise PipelineError("E6303", text, fields={"candidate": str(given)})


def _unpack_wheel(wheel: Path, work: Path) -> Path:
    folder = work / "wheel"
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = archive.namelist()
            if "vedette/__init__.py" not in names:
                raise PipelineError(
                    "E6303", f"{wheel} is a wheel of something else: it has no package vedette"
                )
            if any(Path(name).is_absolute() or ".." in Path(name).parts for name in names):
                raise PipelineError("E6303", f"{wheel} would write outside of its folder: it is not unpacked")
            archive.extractall(folder)
    except zipfile.BadZipFile as problem:
        raise PipelineError("E6303", f"{wheel} is no wheel: {problem}") from problem
    return folder
