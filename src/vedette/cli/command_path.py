"""How to call our programs from where the user is. Hints print this path, so that they can be copied."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

__all__ = ["command_path"]


def command_path(program: str, interpreter: str = sys.executable) -> str:
    """Return what to type for a program that is installed beside the interpreter.

    This is its bare name if the shell finds exactly this program, and otherwise its path, relative if it is below the
    current directory.
    """
    beside, found = Path(interpreter).with_name(program), shutil.which(program)
    if not beside.is_file() or (found is not None and Path(found).samefile(beside)):
        return program
    here = Path.cwd()
    return str(beside.relative_to(here) if beside.is_relative_to(here) else beside)
