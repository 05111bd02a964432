"""Settings: their sources, precedence, validation and error texts."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields
from pathlib import Path
from typing import Any

import pytest

import vedette
from vedette.errors import SettingsError
from vedette.settings import SETTINGS_FILE, Settings, load_settings, validated


def write(directory: Path, text: str) -> Path:
    (directory / SETTINGS_FILE).write_text(text, encoding="utf-8")
    return directory


def refused(work: Callable[[], object]) -> SettingsError:
    with pytest.raises(SettingsError) as caught:
        work()
    assert caught.value.code == "E0101"
    return caught.value


# Precedence


def test_defaults() -> None:
    assert load_settings() == Settings()
    assert Settings().durability == "fsync"


def test_later_sources_override_earlier_ones(tmp_path: Path) -> None:
    write(tmp_path, 'durability = "relaxed"\nplan_cache_size = 5\nmanage_gc = false\nstatement_slice = 7')
    environment = {"VEDETTE_PLAN_CACHE_SIZE": "6", "VEDETTE_MANAGE_GC": "true", "PLAN_CACHE_SIZE": "99"}
    found = load_settings(tmp_path, environment, plan_cache_size=8, tick=None)
    assert found.durability == "relaxed", "only the file says so"
    assert found.statement_slice == 7
    assert found.manage_gc is True, "the variable wins over the file"
    assert found.plan_cache_size == 8, "the caller wins over all"
    assert found.tick == "commit", "None is nothing said"
    assert load_settings(tmp_path, environment).plan_cache_size == 6
    assert load_settings(tmp_path).plan_cache_size == 5


def test_missing_file_gives_defaults(tmp_path: Path) -> None:
    assert load_settings(tmp_path) == load_settings(tmp_path / "nothing there") == Settings()


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("MANAGE_GC", "0", False),
        ("MANAGE_GC", "No", False),
        ("MANAGE_GC", " on ", True),
        ("STRICT_CARDINALITY", "YES", True),
        ("PLAN_CACHE_SIZE", "12", 12),
        ("LOG_RETENTION_SECONDS", "1.5", 1.5),
        ("LOG_RETENTION_SECONDS", "60", 60.0),
        ("ACTOR_TYPES", "Person, Robot,", ("Person", "Robot")),
        ("ACTOR_TYPES", "", ()),
        ("DURABILITY", "relaxed", "relaxed"),
    ],
)
def test_variables_are_parsed_by_the_type_of_the_setting(name: str, text: str, value: Any) -> None:
    found = getattr(load_settings(environment={f"VEDETTE_{name}": text}), name.lower())
    assert found == value
    assert type(found) is type(value)


def test_other_vedette_variables_are_ignored() -> None:
    """VEDETTE_SOAK is used by the tests; other programs may have their own variables."""
    assert (
        load_settings(environment={"VEDETTE_SOAK": "1", "VEDETTE_": "x", "vedette_tick": "manual"})
        == Settings()
    )


def test_values_are_converted_to_the_type_of_the_setting(tmp_path: Path) -> None:
    write(tmp_path, 'log_retention_seconds = 5\nactor_types = ["Person"]')
    found = load_settings(tmp_path)
    assert (found.log_retention_seconds, type(found.log_retention_seconds)) == (5.0, float)
    assert found.actor_types == ("Person",)


# Invalid values


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"durability": "sometimes"}, ["durability", "fsync", "relaxed", "sometimes"]),
        ({"tick": "never"}, ["tick", "commit", "manual", "never"]),
        ({"now": ""}, ["now", "wall", "logical"]),
        ({"plan_cache_size": 0}, ["plan_cache_size", "at least 1", "0"]),
        ({"max_statement_work": -5}, ["max_statement_work", "at least 1"]),
        ({"log_retention_seconds": -1.0}, ["log_retention_seconds", "at least 0"]),
        ({"log_retention_seconds": math.nan}, ["log_retention_seconds", "nan"]),
        ({"plan_cache_size": 1.5}, ["plan_cache_size", "int", "1.5"]),
        ({"plan_cache_size": "many"}, ["plan_cache_size", "int", "many"]),
        ({"plan_cache_size": True}, ["plan_cache_size", "int"]),
        ({"manage_gc": "maybe"}, ["manage_gc", "bool", "maybe"]),
        ({"manage_gc": 1}, ["manage_gc", "bool"]),
        ({"actor_types": "Person"}, ["actor_types", "Person"]),
        ({"actor_types": ["Person", 5]}, ["actor_types", "5"]),
        ({"colour": "blue"}, ["colour", "no such setting", "durability", "tick"]),
    ],
)
def test_invalid_value_is_rejected_with_its_name(values: dict[str, Any], words: list[str]) -> None:
    ways: list[Callable[[], object]] = [lambda: validated(values), lambda: load_settings(**values)]
    if "colour" not in values:
        ways += [lambda: Settings(**values), lambda: vedette.open(":memory:", environment={}, **values)]
    for way in ways:
        error = refused(way)
        assert error.fields == {"setting": next(iter(values))}
        for word in words:
            assert word in error.text


@pytest.mark.parametrize(
    ("name", "text", "word"),
    [
        ("DURABILITY", "bogus", "relaxed"),
        ("PLAN_CACHE_SIZE", "many", "int"),
        ("PLAN_CACHE_SIZE", "0", "at least 1"),
        ("MANAGE_GC", "perhaps", "bool"),
        ("LOG_RETENTION_SECONDS", "nan", "nan"),
    ],
)
def test_invalid_variables_are_rejected(name: str, text: str, word: str) -> None:
    error = refused(lambda: load_settings(environment={f"VEDETTE_{name}": text}))
    assert error.fields == {"setting": name.lower()}
    assert word in error.text


@pytest.mark.parametrize(
    "content",
    [
        b"durability = ",
        b"\xff\xfe",
        b"[durability]\nx = 1",
        b'durability = "a"\ndurability = "b"',
        b"tick = 2024-01-01",
    ],
)
def test_invalid_file_is_rejected(tmp_path: Path, content: bytes) -> None:
    (tmp_path / SETTINGS_FILE).write_bytes(content)
    refused(lambda: load_settings(tmp_path))
    refused(lambda: vedette.open(tmp_path, environment={}))
    assert not (tmp_path / "databases").exists(), "no database was created with invalid settings"


def test_unknown_name_in_the_file_is_rejected(tmp_path: Path) -> None:
    write(tmp_path, 'durabilty = "relaxed"')
    error = refused(lambda: load_settings(tmp_path))
    assert "durabilty" in error.text
    assert "durability" in error.text


# As records


def test_settings_are_immutable() -> None:
    with pytest.raises(FrozenInstanceError):
        Settings().durability = "relaxed"  # type: ignore[misc]
    with pytest.raises(TypeError):
        Settings("relaxed")  # type: ignore[call-arg]


def test_every_setting_has_a_description() -> None:
    for setting in fields(Settings):
        assert len(setting.metadata["about"]) > 10
        unit = setting.name.endswith(("_seconds", "_share"))
        assert unit == (type(setting.default) is float), "a unit in the name"


# Through vedette.open


def test_open_reads_settings_file_and_environment(tmp_path: Path) -> None:
    write(tmp_path, 'tick = "manual"\nplan_cache_size = 5')
    environment = {"VEDETTE_PLAN_CACHE_SIZE": "6"}
    with vedette.open(tmp_path, environment=environment, statement_slice=9) as db:
        found = db.settings
    assert (found.tick, found.plan_cache_size, found.statement_slice) == ("manual", 6, 9)


def test_open_reads_the_process_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VEDETTE_PLAN_CACHE_SIZE", "77")
    with vedette.open(":memory:") as db:
        assert db.settings.plan_cache_size == 77
    with vedette.open(":memory:", environment={}) as db:
        assert db.settings.plan_cache_size == Settings().plan_cache_size


def test_given_settings_object_is_used_unchanged(tmp_path: Path) -> None:
    """The file and the environment are ignored then; keyword options still take precedence."""
    write(tmp_path, 'tick = "manual"')
    settings = Settings(plan_cache_size=3)
    environment = {"VEDETTE_PLAN_CACHE_SIZE": "6"}
    with vedette.open(tmp_path, settings=settings, environment=environment) as db:
        assert db.settings == settings
    with vedette.open(tmp_path, settings=settings, statement_slice=9) as db:
        assert db.settings == Settings(plan_cache_size=3, statement_slice=9)
    error = refused(lambda: vedette.open(tmp_path, settings=settings, durability="bogus"))
    assert "bogus" in error.text


def test_manual_ticks() -> None:
    with vedette.open(":memory:", environment={}, tick="manual") as db:
        db.define("node Task {}")
        session = db.session()
        assert session.execute("SPAWN t: Task").tick == 0
        session.execute("TICK 5")
        assert session.execute("SPAWN t: Task").tick == 5
