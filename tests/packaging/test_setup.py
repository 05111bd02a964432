"""`scripts/setup` installs exactly what the lock names, whatever else the package index offers.

The index of these tests is a folder. It holds the locked versions and, beside them, "tomorrow's release" of each.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging.wheels import locked_line, write_sdist, write_wheel
from tests.support.paths import ROOT

SETUP_SECONDS = 280
"""Below the time limit of a test, so that a hanging set-up is reported with its output."""

# A build backend that writes its own version into the built package.
BACKEND = """
import zipfile
from pathlib import Path

def build_wheel(folder, config_settings=None, metadata_directory=None):
    name = Path("NAME").read_text().strip()
    file = f"{{name}}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(Path(folder, file), "w") as archive:
        archive.writestr(f"{{name}}.py", "built_with = {version!r}\\n")
        info = f"{{name}}-1.0.dist-info"
        archive.writestr(f"{{info}}/METADATA", f"Metadata-Version: 2.1\\nName: {{name}}\\nVersion: 1.0\\n")
        tag = "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
        archive.writestr(f"{{info}}/WHEEL", tag)
        archive.writestr(f"{{info}}/RECORD", "")
    return file

build_editable = build_wheel
"""
PYPROJECT = '[build-system]\nrequires = ["builder"]\nbuild-backend = "builder"\n'


class Project:
    """A small project with the real `scripts/setup`, and a folder in place of the package index."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "project"
        self.index = folder / "index"
        self.index.mkdir()
        (self.root / "scripts").mkdir(parents=True)
        for script in ("setup", "find-python", "apt-install"):
            shutil.copy(ROOT / "scripts" / script, self.root / "scripts")
        (self.root / "pyproject.toml").write_text(PYPROJECT)
        (self.root / "NAME").write_text("app")
        (self.root / "requirements-base.lock").write_text(self.publish_builder())

    def publish_builder(self) -> str:
        files = [
            write_wheel(
                self.index, "builder", version, modules={"builder.py": BACKEND.format(version=version)}
            )
            for version in ("1.0", "2.0")
        ]
        return locked_line("builder==1.0", files[0])

    def publish(self, name: str, *, requires: tuple[str, ...] = (), extras: tuple[str, ...] = ()) -> str:
        """Publish 1.0 and 2.0 of a package. Return the line that locks 1.0."""
        files = [
            write_wheel(self.index, name, version, requires=requires, extras=extras)
            for version in ("1.0", "2.0")
        ]
        extra = f"[{','.join(extras)}]" if extras else ""
        return locked_line(f"{name}{extra}==1.0", files[0])

    def publish_source(self, name: str) -> str:
        """Publish 1.0 as source code only. Return the line that locks it."""
        file = write_sdist(self.index, name, "1.0", files={"pyproject.toml": PYPROJECT, "NAME": name})
        return locked_line(f"{name}==1.0", file)

    def lock(self, *lines: str) -> None:
        base = (self.root / "requirements-base.lock").read_text()
        (self.root / "requirements.lock").write_text(base + "".join(lines))

    def setup(self) -> subprocess.CompletedProcess[str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
        settings = {
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self.index),
            "PIP_NO_CACHE_DIR": "1",
            "PYTHON": getattr(sys, "_base_executable", sys.executable),
        }
        return subprocess.run(
            [self.root / "scripts" / "setup", ".venv", "requirements.lock"],
            env=environment | settings,
            capture_output=True,
            text=True,
            check=False,
            timeout=SETUP_SECONDS,
        )

    def python(self, code: str) -> str:
        done = subprocess.run(
            [self.root / ".venv" / "bin" / "python", "-c", code], capture_output=True, text=True, check=True
        )
        return done.stdout.strip()


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_a_newer_release_changes_nothing(project: Project) -> None:
    """`alpha` asks for `beta[fast]` without a version, as pytest-cov asks for coverage[toml]."""
    project.lock(
        project.publish("alpha", requires=("beta[fast]",)),
        project.publish("beta", requires=('gamma; extra == "fast"',), extras=("fast",)),
        project.publish("gamma"),
        project.publish_source("delta"),
    )
    done = project.setup()
    assert done.returncode == 0, done.stdout + done.stderr
    versions = project.python("import alpha, beta, gamma; print(alpha.version, beta.version, gamma.version)")
    assert versions == "1.0 1.0 1.0"
    assert project.python("import delta, app; print(delta.built_with, app.built_with)") == "1.0 1.0"


def test_an_incomplete_lock_fails_and_downloads_nothing_else(project: Project) -> None:
    project.publish("beta")
    project.lock(project.publish("alpha", requires=("beta",)))
    done = project.setup()
    assert done.returncode != 0
    assert "beta" in done.stdout + done.stderr
    assert project.python("import importlib.util as u; print(u.find_spec('beta'))") == "None"


def test_a_file_with_another_hash_is_refused(project: Project) -> None:
    line = project.publish("alpha")
    write_wheel(project.index, "alpha", "1.0", modules={"alpha.py": "version = 'replaced'\n"})
    project.lock(line)
    done = project.setup()
    assert done.returncode != 0
    assert "HASHES" in done.stdout + done.stderr
