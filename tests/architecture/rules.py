"""Rules about the source tree, one function each: a module in, findings out.

A finding names the place, the problem and what to do instead. docs/design/layers.md has the reasons.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

from tests.architecture.modules import Module

__all__ = ["RULES", "Rule"]

Rule = Callable[[Module], Iterator[str]]

CORE_PACKAGES = {"filters", "graph", "handshake", "language", "policy", "queue", "watch"}
CORE_SHELLS = ("handshake/tables/",)
"""Folders of a core package that do I/O: the tables of the handshake apply its state machines to rows."""

IO_MODULES = {
    "asyncio",
    "concurrent",
    "multiprocessing",
    "psycopg",
    "queue",
    "select",
    "selectors",
    "signal",
    "socket",
    "sqlite3",
    "ssl",
    "subprocess",
    "threading",
}
IO_CALLS = {"open", "input", "print", "io.open", "os.open", "time.sleep"}

PRESENT_AND_CHANCE = {
    "datetime.date.today",
    "datetime.datetime.now",
    "datetime.datetime.today",
    "datetime.datetime.utcnow",
    "time.monotonic",
    "time.monotonic_ns",
    "time.perf_counter",
    "time.perf_counter_ns",
    "time.time",
    "time.time_ns",
    "uuid.uuid1",
    "uuid.uuid4",
}

MAX_MODULE_LINES = 500
LONGER_MODULES = {"engine/watch_service/service.py"}
"""Replaced with the rebuild of the commit path."""

VAGUE_MODULE_NAMES = {"common", "helper", "helpers", "manager", "managers", "misc", "util", "utils"}
VAGUE_CLASS_ENDINGS = ("Handler", "Helper", "Manager")
TOY_WORDS = {"basic", "mock", "simple"}


def pyspark_stays_in_pipeline(module: Module) -> Iterator[str]:
    if module.package == "pipeline":
        return
    for line, name in module.imported_modules():
        if name.partition(".")[0] in {"pyspark", "py4j"}:
            yield module.at(line, f"imports {name}: only vedette/pipeline/ may; put the Spark side there")


def cores_do_no_io(module: Module) -> Iterator[str]:
    if module.package not in CORE_PACKAGES or module.path.startswith(CORE_SHELLS):
        return
    for line, name in module.imported_modules():
        if name.partition(".")[0] in IO_MODULES:
            yield module.at(
                line, f"imports {name} in a core package: take inputs, return outputs, let the shell do it"
            )
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and module.dotted(node.func) in IO_CALLS:
            yield module.at(
                node.lineno,
                f"calls {module.dotted(node.func)} in a core package: take the data as a parameter",
            )
        elif isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith):
            yield module.at(node.lineno, "is asynchronous in a core package: make it a plain function")


def time_and_chance_are_parameters(module: Module) -> Iterator[str]:
    if module.path == "clock.py":
        return
    for line, name in module.uses():
        if name in PRESENT_AND_CHANCE:
            yield module.at(line, f"uses {name}: take a Clock (vedette.clock) as a parameter")
        # random.Random may be used as a type; instances are created in clock.py.
        elif name.startswith("random.") and name.count(".") == 1 and name != "random.Random":
            yield module.at(
                line, f"uses {name}: take a random.Random as a parameter (vedette.clock makes one)"
            )
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and module.dotted(node.func) == "random.Random" and not node.args:
            yield module.at(node.lineno, "makes an unseeded random.Random: take one as a parameter")


def modules_are_small(module: Module) -> Iterator[str]:
    lines = module.text.count("\n")
    if lines > MAX_MODULE_LINES and module.path not in LONGER_MODULES:
        yield module.at(lines, f"has {lines} lines; split it, {MAX_MODULE_LINES} is the maximum")


def names_say_something(module: Module) -> Iterator[str]:
    if module.name in VAGUE_MODULE_NAMES:
        yield module.at(1, f"module name {module.name!r} explains nothing: name it after what it holds")
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ClassDef) and node.name.endswith(VAGUE_CLASS_ENDINGS):
            yield module.at(node.lineno, f"class {node.name}: name it after what it is or decides")


def public_names_are_no_toys(module: Module) -> Iterator[str]:
    definitions = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    found = [(node.lineno, node.name) for node in ast.walk(module.tree) if isinstance(node, definitions)]
    for line, name in [(1, module.name), *found]:
        toys = TOY_WORDS & set(_words(name))
        if toys and not name.startswith("_"):
            yield module.at(line, f"{name}: name what it does instead of calling it {toys.pop()}")


def public_modules_list_their_names(module: Module) -> Iterator[str]:
    if module.name.startswith("_"):
        return
    assigned = {
        target.id
        for node in module.tree.body
        for target in (node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)])
        if isinstance(target, ast.Name)
    }
    if "__all__" not in assigned:
        yield module.at(1, "has no __all__: list what other modules may import (an empty list if nothing)")


def packages_import_packages_not_the_root(module: Module) -> Iterator[str]:
    """`import vedette` would bypass the layers, which import-linter does not see."""
    if module.package in {"", "testing"}:
        return
    for line, name in module.imported_modules():
        if name == "vedette":
            yield module.at(line, "imports the root package vedette: import the module that you mean")


def _words(name: str) -> list[str]:
    """Split a name into words: MockStore and mock_store are mock and store."""
    return re.findall(r"[a-z0-9]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower())


RULES: tuple[Rule, ...] = (
    pyspark_stays_in_pipeline,
    cores_do_no_io,
    time_and_chance_are_parameters,
    modules_are_small,
    names_say_something,
    public_names_are_no_toys,
    public_modules_list_their_names,
    packages_import_packages_not_the_root,
)
