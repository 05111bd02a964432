"""Every module of src has a test at the mirrored path, or a line in covered_elsewhere.txt that names its test.

A line is `path/of/module: path/of/test`, below src/vedette and below tests, both without `.py`. The list only shrinks:
remove the line of a module when its own test is added.
"""

from __future__ import annotations

from pathlib import Path

from tests.architecture.modules import ROOT, source_modules

TESTS = ROOT / "tests"
UNIT = TESTS / "unit"
LIST = UNIT / "covered_elsewhere.txt"
MAX_LINES = 300


def modules() -> set[str]:
    return {
        module.path.removesuffix(".py")
        for module in source_modules()
        if Path(module.path).name not in {"__init__.py", "__main__.py"}
    }


def mirrored_test(module: str) -> Path:
    folder, _, name = module.rpartition("/")
    return UNIT / folder / f"test_{name}.py"


def covered_elsewhere() -> dict[str, str]:
    lines = [line for line in LIST.read_text().splitlines() if line and not line.startswith("#")]
    assert lines == sorted(lines), "keep the list sorted"
    pairs = [line.split(": ") for line in lines]
    assert len({module for module, _ in pairs}) == len(pairs), "a module is listed twice"
    return {pair[0]: pair[1] for pair in pairs}


def test_every_module_has_a_test() -> None:
    untested = {module for module in modules() if not mirrored_test(module).exists()} - set(
        covered_elsewhere()
    )
    assert not untested, "add tests/unit/<same path>/test_<module>.py for:\n" + "\n".join(sorted(untested))


def test_the_list_names_modules_without_a_mirrored_test() -> None:
    listed = set(covered_elsewhere())
    assert not listed - modules(), f"no such module: {sorted(listed - modules())}"
    mirrored = sorted(module for module in listed if mirrored_test(module).exists())
    assert not mirrored, f"remove the lines of modules that have a test of their own: {mirrored}"


def test_the_list_names_tests_that_exist() -> None:
    missing = [
        f"{module}: {test}"
        for module, test in covered_elsewhere().items()
        if not (TESTS / f"{test}.py").exists()
    ]
    assert not missing, "no such test:\n" + "\n".join(missing)


def test_the_list_only_shrinks() -> None:
    assert len(covered_elsewhere()) <= MAX_LINES
