"""The source tree follows the rules of tests/architecture/rules.py, and each rule finds an example that breaks it."""

from __future__ import annotations

import pytest

from tests.architecture import rules
from tests.architecture.modules import Module, source_modules
from tests.architecture.rules import RULES, Rule


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_source_keeps(rule: Rule) -> None:
    findings = [finding for module in source_modules() for finding in rule(module)]
    assert not findings, "\n".join(["", *findings])


# (rule, path below src/vedette, text): one finding each
BROKEN = [
    (rules.pyspark_stays_in_pipeline, "sources/files.py", "from pyspark.sql import functions"),
    (rules.pyspark_stays_in_pipeline, "engine/session/session.py", "def late():\n    import pyspark"),
    (rules.cores_do_no_io, "watch/matcher.py", "import asyncio"),
    (rules.cores_do_no_io, "graph/store/pages.py", "from sqlite3 import connect"),
    (rules.cores_do_no_io, "language/parser.py", "def load(path):\n    return open(path)"),
    (rules.cores_do_no_io, "queue/leases.py", "async def renew(): ..."),
    (rules.time_and_chance_are_parameters, "engine/commit.py", "import time\nstart = time.monotonic()"),
    (rules.time_and_chance_are_parameters, "engine/commit.py", "from time import time\nstart = time()"),
    (rules.time_and_chance_are_parameters, "values.py", "import datetime as dt\nx = dt.datetime.now(dt.UTC)"),
    (rules.time_and_chance_are_parameters, "values.py", "from datetime import datetime\nnow = datetime.now"),
    (rules.time_and_chance_are_parameters, "graph/ids.py", "import random\nx = random.randint(1, 2)"),
    (rules.time_and_chance_are_parameters, "graph/ids.py", "from random import choice\nx = choice([1])"),
    (rules.time_and_chance_are_parameters, "graph/ids.py", "from random import Random\nx = Random()"),
    (rules.modules_are_small, "graph/all.py", "x = 1\n" * 501),
    (rules.names_say_something, "graph/utils.py", ""),
    (rules.names_say_something, "graph/helpers/__init__.py", ""),
    (rules.names_say_something, "graph/locks.py", "class LockManager: ..."),
    (rules.public_names_are_no_toys, "storage/mock_store.py", ""),
    (rules.public_names_are_no_toys, "engine/session/session.py", "class BasicSession: ..."),
    (rules.public_names_are_no_toys, "engine/session/session.py", "def simple_open(): ..."),
    (rules.public_modules_list_their_names, "graph/__init__.py", ""),
    (rules.public_modules_list_their_names, "graph/ids.py", "def fresh(): ...\nfresh.__all__ = []"),
    (rules.packages_import_packages_not_the_root, "graph/ids.py", "import vedette"),
    (rules.packages_import_packages_not_the_root, "graph/ids.py", "from vedette import open"),
]

# (rule, path, text): no finding
SOUND = [
    (rules.pyspark_stays_in_pipeline, "pipeline/match.py", "import pyspark"),
    (rules.cores_do_no_io, "engine/session/session.py", "import asyncio, threading\nfile = open('x')"),
    (rules.cores_do_no_io, "watch/buffers.py", "class Gate:\n    def open(self): return self.state.open"),
    (rules.cores_do_no_io, "handshake/tables/system_state.py", "import sqlite3"),
    (rules.time_and_chance_are_parameters, "clock.py", "import time\nnow = time.time()"),
    (rules.time_and_chance_are_parameters, "engine/commit.py", "def due(clock): return clock.monotonic()"),
    (
        rules.time_and_chance_are_parameters,
        "engine/retry.py",
        "import random\ndef wait(r: random.Random): r.random()",
    ),
    (rules.modules_are_small, "graph/all.py", "x = 1\n" * 500),
    (rules.names_say_something, "graph/elements.py", "class Handle: ..."),
    (rules.public_names_are_no_toys, "engine/session/session.py", "def simplify(): ...\ndef _mock(): ..."),
    (rules.public_modules_list_their_names, "graph/__init__.py", "__all__: list[str] = []"),
    (rules.public_modules_list_their_names, "__main__.py", "main()"),
    (rules.packages_import_packages_not_the_root, "graph/ids.py", "from vedette.values import Value"),
]


@pytest.mark.parametrize(("rule", "path", "text"), BROKEN)
def test_rule_finds(rule: Rule, path: str, text: str) -> None:
    findings = list(rule(Module(path=path, text=text)))
    assert len(findings) == 1
    assert findings[0].startswith(f"src/vedette/{path}:")


@pytest.mark.parametrize(("rule", "path", "text"), SOUND)
def test_rule_lets_pass(rule: Rule, path: str, text: str) -> None:
    assert not list(rule(Module(path=path, text=text)))


def test_every_rule_has_a_broken_and_a_sound_example() -> None:
    assert set(RULES) == {rule for rule, _, _ in BROKEN} == {rule for rule, _, _ in SOUND}
