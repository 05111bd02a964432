"""Compile the core: machine code of the modules that `vedette.compiled` names, into src/vedette/_compiled.

compile_core.py            make it of the present sources
compile_core.py --fits     only say, by exit code, whether what is there was made of them
"""

import shutil
import sys
from pathlib import Path

from vedette.compiled import COMPILED_MODULES, LIBRARY, Manifest, source_fingerprint

ROOT = Path(__file__).parent.parent
WORK = ROOT / "build" / "core"


def main() -> int:
    fingerprint = source_fingerprint()
    if sys.argv[1:] == ["--fits"]:
        present = Manifest.read()
        return 0 if present is not None and present.fingerprint == fingerprint else 1
    made = compile_modules()
    shutil.rmtree(Manifest.DIRECTORY, ignore_errors=True)
    Manifest.DIRECTORY.mkdir()
    for module, file in made.items():
        shutil.copy(file, Manifest.DIRECTORY / f"{module}.so")
    Manifest(fingerprint, {module: f"{module}.so" for module in made}).write()
    return 0


def compile_modules() -> dict[str, Path]:
    """The files made, by the name of the extension module in each."""
    # Heavy, and not needed to say that there is nothing to do.
    from mypyc.build import mypycify
    from setuptools import Distribution
    from setuptools.command.build_ext import build_ext

    sources = [str(Path("src", *module.split(".")).with_suffix(".py")) for module in COMPILED_MODULES]
    extensions = mypycify(
        [f"--config-file={ROOT / 'pyproject.toml'}", f"--cache-dir={WORK / 'types'}", *sources],
        group_name=LIBRARY,
        multi_file=True,  # a C file for each module: they are compiled side by side, and again only when changed
        opt_level="2",
        debug_level="0",
        target_dir=str(WORK),
    )
    command = build_ext(Distribution({"name": LIBRARY, "ext_modules": extensions}))
    command.build_lib, command.build_temp = str(WORK / "lib"), str(WORK / "objects")
    command.parallel = 2
    command.ensure_finalized()
    command.run()
    return {e.name: Path(command.get_ext_fullpath(e.name)) for e in extensions}


if __name__ == "__main__":
    sys.exit(main())
