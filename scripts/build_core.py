"""Compile the modules that `vedette.compiled` lists to machine code, into src/vedette/_compiled.

build_core.py            compile the current sources
build_core.py --check    exit with 0 if the compiled core was built from the current sources, else with 1
"""

import shutil
import sys
from pathlib import Path

from vedette.compiled import COMPILED_MODULES, LIBRARY, Manifest, source_fingerprint

ROOT = Path(__file__).parent.parent
WORK = ROOT / "build" / "core"


def main() -> int:
    fingerprint = source_fingerprint()
    if sys.argv[1:] == ["--check"]:
        manifest = Manifest.read()
        return 0 if manifest is not None and manifest.fingerprint == fingerprint else 1
    files = compile_modules()
    shutil.rmtree(Manifest.DIRECTORY, ignore_errors=True)
    Manifest.DIRECTORY.mkdir()
    for module, file in files.items():
        shutil.copy(file, Manifest.DIRECTORY / f"{module}.so")
    Manifest(fingerprint, {module: f"{module}.so" for module in files}).write()
    return 0


def compile_modules() -> dict[str, Path]:
    """Return the compiled files by the name of their extension module."""
    # Imported here, because they are slow to import and `--check` does not need them.
    from mypyc.build import mypycify
    from setuptools import Distribution
    from setuptools.command.build_ext import build_ext

    sources = [str(Path("src", *module.split(".")).with_suffix(".py")) for module in COMPILED_MODULES]
    extensions = mypycify(
        [f"--config-file={ROOT / 'pyproject.toml'}", f"--cache-dir={WORK / 'types'}", *sources],
        group_name=LIBRARY,
        multi_file=True,  # one C file per module: compiled in parallel, and only after a change
        opt_level="2",
        debug_level="0",
        target_dir=str(WORK),
    )
    command = build_ext(Distribution({"name": LIBRARY, "ext_modules": extensions}))
    command.build_lib, command.build_temp = str(WORK / "lib"), str(WORK / "objects")
    command.parallel = 2
    command.ensure_finalized()
    command.run()
    return {extension.name: Path(command.get_ext_fullpath(extension.name)) for extension in extensions}


if __name__ == "__main__":
    sys.exit(main())
