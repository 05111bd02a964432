"""Checkouts of two commits, each with an environment and a compiled core of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

__all__ = ["Checkout", "full_commit", "is_dirty", "two_checkouts"]

ROOT = Path(__file__).parents[2]
SETUP_SECONDS = 3_600.0
"""For the environment of one checkout: packages are downloaded, some are built."""
_GIT_SECONDS = 300.0
_LOCK = "requirements.lock"
_VENV = ".venv"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkout:
    name: str
    """"old" or "new"."""
    commit: str
    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / _VENV / "bin" / "python"


def full_commit(revision: str) -> str:
    """Return the full id of a commit; a revision that git does not know is an error."""
    found = _git("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}", check=False)
    if not found:
        raise ValueError(f"'{revision}' is no commit of this repository")
    return found


def is_dirty() -> bool:
    """Return whether tracked files differ from HEAD: these changes are in no commit."""
    return bool(_git("status", "--porcelain", "--untracked-files=no"))


@contextmanager
def two_checkouts(old: str, new: str, say: Callable[[str], None]) -> Iterator[tuple[Checkout, Checkout]]:
    """Check out both commits and set them up; remove everything at the end.

    The temporary folder is on the disk of the repository: the system's own may be memory, which makes fsync free.
    """
    (ROOT / "build").mkdir(exist_ok=True)
    base = Path(mkdtemp(prefix="compare-", dir=ROOT / "build"))
    with ExitStack() as stack:
        stack.callback(_git, "worktree", "prune", check=False)
        stack.callback(shutil.rmtree, base, ignore_errors=True)
        found = []
        for name, commit in (("old", old), ("new", new)):
            checkout = Checkout(name=name, commit=commit, folder=base / name)
            _git("worktree", "add", "--quiet", "--detach", str(checkout.folder), commit)
            stack.callback(_git, "worktree", "remove", "--force", str(checkout.folder), check=False)
            say(f"Setting up the {name} commit {commit[:12]} …")
            _set_up(checkout)
            found.append(checkout)
        yield found[0], found[1]


def _set_up(checkout: Checkout) -> None:
    """Install the locked packages and compile the core; a core that does not compile is an error."""
    for command in (
        ["scripts/setup", _VENV, _LOCK],
        _build_core_command(checkout),
    ):
        done = subprocess.run(
            command,
            cwd=checkout.folder,
            env={**environment(), "CI": "1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=SETUP_SECONDS,
        )
        if done.returncode:
            words = " ".join(command)
            end = (done.stderr or done.stdout)[-1_000:]
            raise RuntimeError(
                f"`{words}` failed in the {checkout.name} checkout {checkout.commit[:12]}:\n{end}"
            )


def _build_core_command(checkout: Checkout) -> list[str]:
    """Return the command that compiles the core. With CI set it fails if the core cannot be compiled.

    Commits before the script was renamed have it as `ensure-compiled`.
    """
    names = ("build-core", "ensure-compiled")
    name = next(name for name in names if (checkout.folder / "scripts" / name).exists())
    return [f"scripts/{name}", _VENV]


def environment() -> dict[str, str]:
    """Return the environment of this process without variables that would choose another Python or a plain core."""
    left_out = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "VEDETTE_COMPILED")
    return {name: value for name, value in os.environ.items() if name not in left_out}


def _git(*words: str, check: bool = True) -> str:
    git = shutil.which("git")
    if git is None:
        raise RuntimeError("git is not installed")
    done = subprocess.run(
        [git, "-C", str(ROOT), *words], capture_output=True, text=True, check=False, timeout=_GIT_SECONDS
    )
    if check and done.returncode:
        raise RuntimeError(f"`git {' '.join(words)}` failed: {done.stderr[-300:]}")
    return done.stdout.strip()
