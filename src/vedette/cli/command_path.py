"""How our programs are called from where the user is: what a hint says must work as it stands."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

__all__ = ["as_typed"]


def as_typed(program: str, interpreter: str = sys.executable) -> str:
    """By its name where that is enough; else by its place beside the interpreter, from here when it is below."""
    beside = Path(interpreter).with_name(program)
    if shutil.which(program) is not None or not beside.is_file():
        return program
    here = Path.cwd()
    return str(beside.relative_to(here) if beside.is_relative_to(here) else beside)
