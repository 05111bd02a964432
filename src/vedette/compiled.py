"""Loads the compiled core, if `scripts/build_core.py` has built one from exactly these sources.

The code on the path of every commit is typed Python that mypyc compiles to machine code, which takes about half the
time. There is one source. After any edit, under another Python, without a compiler or with VEDETTE_COMPILED=0 the
plain modules are loaded and behave the same.

Not compiled: code that examines many candidates (`language.compile.*`), because machine code does not let other
threads run between two steps; and classes that users may derive from (`clock`), because compiled classes cannot be
subclassed.
"""

import json
import os
import sys
from collections.abc import Mapping
from hashlib import sha256
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path

__all__ = ["COMPILED_MODULES", "LIBRARY", "Manifest", "install_compiled", "is_compiled", "source_fingerprint"]

COMPILED_MODULES = (
    "vedette.element",
    "vedette.values",
    "vedette.language.compile.affected_matches",
    "vedette.language.compile.execution_context",
    "vedette.language.compile.union_view",
    "vedette.graph.actions",
    "vedette.graph.graph",
    "vedette.graph.overlay",
    "vedette.graph.postings",
    "vedette.graph.transaction",
    "vedette.watch.buffer",
    "vedette.watch.delta",
    "vedette.watch.evaluation.commit_views",
    "vedette.watch.evaluation.counted",
    "vedette.watch.evaluation.effects",
    "vedette.watch.evaluation.reevaluation",
    "vedette.watch.evaluation.rows",
    "vedette.watch.shape_index",
    "vedette.watch.shapes.key_index",
    "vedette.watch.recent_events",
    "vedette.watch.shapes.shape",
    "vedette.watch.watch",
    "vedette.queue.delivery",
    "vedette.queue.dispatcher",
    "vedette.queue.entry",
    "vedette.queue.group",
    "vedette.queue.leases",
    "vedette.queue.line",
    "vedette.queue.match_queue",
    "vedette.watch.ordering",
    "vedette.engine.queue_service.service",
    "vedette.engine.queue_service.settlement",
    "vedette.engine.statements.execution",
    "vedette.engine.context.prepared",
    "vedette.engine.context.result",
    "vedette.engine.state.graph_state",
    "vedette.engine.queue_service.matcher",
    "vedette.engine.commit.lock",
    "vedette.engine.session.watch_handle",
    "vedette.engine.watch_service.service",
)
LIBRARY = "vedette_core"
"""The machine code of all modules. Each module has a small file next to it that refers to its part."""

_HERE = Path(__file__).parent
_FINGERPRINTED = (
    "*.py",
    "language/**/*.py",
    "filters/**/*.py",
    "graph/**/*.py",
    "storage/**/*.py",
    "watch/**/*.py",
    "queue/**/*.py",
    "engine/**/*.py",
)


class Manifest:
    """What was compiled, from which sources, and where it is."""

    def __init__(self, fingerprint: str, files: Mapping[str, str]) -> None:
        self.fingerprint = fingerprint
        self.files = files
        """Module ▸ file in the same directory."""

    DIRECTORY = _HERE / "_compiled"

    @classmethod
    def read(cls) -> "Manifest | None":
        try:
            return cls(**json.loads((cls.DIRECTORY / "manifest.json").read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def write(self) -> None:
        (self.DIRECTORY / "manifest.json").write_text(json.dumps(vars(self), indent=1))


def source_fingerprint(package: Path = _HERE) -> str:
    """Hash the sources that the compiler reads, and the ABI of the running Python.

    A source counts with its path relative to `package`, so moving a file changes the fingerprint.
    """
    digest = sha256(EXTENSION_SUFFIXES[0].encode())
    for pattern in _FINGERPRINTED:
        for path in sorted(package.glob(pattern)):
            digest.update(f"\n{path.relative_to(package).as_posix()}\n".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def is_compiled() -> bool:
    """True if this process runs the compiled core."""
    return any(isinstance(finder, _Finder) for finder in sys.meta_path)


def install_compiled() -> None:
    """Make imports find the compiled core, if it matches the sources."""
    if os.environ.get("VEDETTE_COMPILED") != "0" and not is_compiled():
        manifest = Manifest.read()
        if manifest is not None and manifest.fingerprint == source_fingerprint():
            sys.meta_path.insert(0, _Finder(manifest.files))


class _Finder:
    def __init__(self, files: Mapping[str, str]) -> None:
        self._files = files

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        file = self._files.get(name)
        if file is None:
            return None
        where = str(Manifest.DIRECTORY / file)
        return spec_from_file_location(name, where, loader=ExtensionFileLoader(name, where))
