"""Compile the core: machine code of the modules that `vedette.compiled` names, into src/vedette/_compiled.

Run by scripts/setup with the Python of the virtual environment. Nothing to do while what is there fits the sources.
"""

import shutil
import sys
from pathlib import Path

from mypyc.build import mypycify
from setuptools import Distribution
from setuptools.command.build_ext import build_ext

from vedette.compiled import LIBRARY, MODULES, Manifest, present_fingerprint

ROOT = Path(__file__).parent.parent
WORK = ROOT / "build" / "core"


def main() -> int:
    fingerprint = present_fingerprint()
    present = Manifest.read()
    if present is not None and present.fingerprint == fingerprint:
        return 0
    print("vedette: compiling the core (a minute or so; VEDETTE_COMPILED=0 goes without)", flush=True)
    shutil.rmtree(Manifest.PLACE, ignore_errors=True)
    Manifest.PLACE.mkdir()
    files = {}
    for extension, built in compile_modules():
        file = f"{extension}.so"
        shutil.copy(built, Manifest.PLACE / file)
        files[extension] = file
    Manifest(fingerprint, files).write()
    return 0


def compile_modules() -> list[tuple[str, Path]]:
    """The name and the file of every extension module made."""
    sources = [str(Path("src", *module.split(".")).with_suffix(".py")) for module in MODULES]
    extensions = mypycify(
        [f"--config-file={ROOT / 'pyproject.toml'}", f"--cache-dir={WORK / 'types'}", "--no-warn-unused-configs", *sources],
        group_name=LIBRARY,
        multi_file=True,
        opt_level="2",
        debug_level="0",
        target_dir=str(WORK),
    )
    command = build_ext(Distribution({"name": LIBRARY, "ext_modules": extensions}))
    command.build_lib, command.build_temp = str(WORK / "lib"), str(WORK / "objects")
    command.parallel = 2
    command.ensure_finalized()
    command.run()
    return [(e.name, Path(command.get_ext_fullpath(e.name))) for e in extensions]


if __name__ == "__main__":
    sys.exit(main())
