"""The compiled core is loaded only if it matches its sources."""

import os
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import vedette
from tests.conftest import IN_CI
from vedette.compiled import COMPILED_MODULES, Manifest, is_compiled, source_fingerprint

PACKAGE = Path(vedette.__file__).parent
ROOT = Path(__file__).parents[2]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the package with its compiled modules."""
    if not is_compiled():
        pytest.skip("the core was edited, or not compiled yet: `make test` compiles it")
    shutil.copytree(PACKAGE, tmp_path / "vedette", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "vedette"


def origin_of(module: str, copy: Path, **environment: str) -> Path:
    """Return the file from which a new process loads a module of the copy."""
    program = f"import {module} as m; print(m.__file__)"
    inherited = {key: value for key, value in os.environ.items() if key != "VEDETTE_COMPILED"}
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env={**inherited, "PYTHONPATH": str(copy.parent), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return Path(ran.stdout.strip())


def test_matching_compiled_core_is_loaded(copy: Path) -> None:
    for module in ("vedette.watch.evaluation.effects", "vedette.engine.state.graph_state"):
        assert origin_of(module, copy).parent == copy / "_compiled"
    assert origin_of("vedette.language.compile.patterns", copy).suffix == ".py"


@pytest.mark.parametrize(
    "edited", ["watch/evaluation/effects.py", "language/compile/patterns.py", "errors.py"]
)
def test_edited_sources_disable_the_compiled_core(copy: Path, edited: str) -> None:
    with (copy / edited).open("a") as file:
        file.write("\n# edited\n")
    assert origin_of("vedette.watch.evaluation.effects", copy) == copy / "watch/evaluation/effects.py"


def test_edits_of_uncompiled_files_are_ignored(copy: Path) -> None:
    with (copy / "cli" / "__init__.py").open("a") as file:
        file.write("\n# edited\n")
    assert origin_of("vedette.watch.evaluation.effects", copy).suffix == ".so"


def test_compiled_core_can_be_disabled(copy: Path) -> None:
    assert origin_of("vedette.watch.evaluation.effects", copy, VEDETTE_COMPILED="0").suffix == ".py"


@pytest.mark.parametrize(
    "text", [None, "", "[]", '{"fingerprint": 1}', '{"files": {}, "fingerprint": "x", "y": 2}']
)
def test_unreadable_manifest_disables_the_compiled_core(copy: Path, text: str | None) -> None:
    manifest = copy / "_compiled" / "manifest.json"
    manifest.unlink() if text is None else manifest.write_text(text)
    assert origin_of("vedette.watch.evaluation.effects", copy).suffix == ".py"


def test_ci_runs_the_compiled_core() -> None:
    """With CI set every listed module is machine code, unless VEDETTE_COMPILED=0 asks for the plain core."""
    loaded = {
        module for module in COMPILED_MODULES if Path(import_module(module).__file__ or "").suffix == ".so"
    }
    must_be_compiled = IN_CI and os.environ.get("VEDETTE_COMPILED") != "0"
    assert loaded == set(COMPILED_MODULES if must_be_compiled or is_compiled() else ())


def test_fingerprint_covers_subfolders_and_paths(tmp_path: Path) -> None:
    source = tmp_path / "language" / "parser" / "rules.py"
    source.parent.mkdir(parents=True)
    empty = source_fingerprint(tmp_path)
    source.write_text("A = 1\n")
    first = source_fingerprint(tmp_path)
    source.write_text("A = 2\n")
    second = source_fingerprint(tmp_path)
    moved = tmp_path / "language" / "printer" / "rules.py"
    moved.parent.mkdir()
    source.rename(moved)
    assert len({empty, first, second, source_fingerprint(tmp_path)}) == 4


@pytest.mark.parametrize(("ci", "code"), [(None, 0), ("", 0), ("0", 0), ("false", 0), ("1", 1), ("true", 1)])
def test_failed_compilation_is_an_error_in_ci(tmp_path: Path, ci: str | None, code: int) -> None:
    script = ROOT / "scripts" / "build-core"
    (tmp_path / "scripts").mkdir()
    shutil.copy(script, tmp_path / "scripts")
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(
        f'#!/bin/sh\ncase "$1" in *build_core.py) echo "no"; exit 1 ;; *) exec {sys.executable} "$@" ;; esac\n'
    )
    python.chmod(0o755)
    inherited = {key: value for key, value in os.environ.items() if key not in {"CI", "VEDETTE_COMPILED"}}
    ran = subprocess.run(
        [tmp_path / "scripts" / "build-core", "venv"],
        env=inherited | ({} if ci is None else {"CI": ci}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == code, ran.stderr
    assert "compiling failed" in ran.stderr


def test_every_listed_module_exists() -> None:
    assert all(
        (PACKAGE.parent / Path(*module.split("."))).with_suffix(".py").exists() for module in COMPILED_MODULES
    )
    manifest = Manifest.read()
    if manifest is not None and manifest.fingerprint == source_fingerprint():
        assert set(COMPILED_MODULES) < set(manifest.files)
