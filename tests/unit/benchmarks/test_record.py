"""Combining runs that were measured separately."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks.case import Case, Metric, Outcome, Series
from benchmarks.cases import CASES
from benchmarks.machine import Machine
from benchmarks.page import page
from benchmarks.record import Run, joined, read_run, write_run


def run(date: str, *cases: str, value: float = 1.0) -> Run:
    machine = Machine(
        date=date,
        system="Linux",
        processor="one",
        cores=2,
        memory_gib=1.0,
        python="CPython",
        revision="abc",
        file_system="ext4",
        syncs_per_second=100.0,
        load_before=1.0,
        versions={},
    )
    outcomes = [
        Outcome(
            case=case,
            title=f"The case {case}",
            method="",
            metric=Metric(name=case, unit="s"),
            series=[Series(contender="Vedette", about="", samples=[value])],
        )
        for case in cases
    ]
    return Run(
        machine=machine,
        scale="full",
        complete=False,
        seconds=60.0,
        load_after=2.0,
        revision_after="abc",
        outcomes=outcomes,
    )


def test_cases_keep_their_order_and_measurement_time():
    whole = joined([run("monday", "b", "c"), run("tuesday", "a")], ["a", "b", "c"])
    assert [outcome.case for outcome in whole.outcomes] == ["a", "b", "c"]
    assert whole.complete
    assert whole.measured["a"].startswith("tuesday")
    text = page(whole)
    assert "Measured tuesday at `abc`, load 1.0 to 2.0, 100 syncs a second." in text


def test_later_result_of_a_case_replaces_the_earlier():
    whole = joined([run("monday", "a", value=1.0), run("tuesday", "a", value=2.0)], ["a", "b"])
    assert [outcome.series[0].samples for outcome in whole.outcomes] == [[2.0]]
    assert not whole.complete


def test_run_round_trip(tmp_path: Path):
    whole = joined([run("monday", "a"), run("tuesday", "b")], ["a", "b"])
    write_run(whole, tmp_path / "run.json")
    assert read_run(tmp_path / "run.json") == whole


def test_case_measured_at_smaller_size_has_no_verdict():
    small = replace(run("tuesday", "b"), scale="quick")
    whole = joined([run("monday", "a"), small], ["a", "b"])
    assert whole.quick_cases == ["b"]
    assert "| b | 1.00 s |  | quick run, smaller: not judged |" in page(whole)
    assert joined([whole, run("wednesday", "b")], ["a", "b"]).quick_cases == []


def test_interrupted_run_keeps_its_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    measured: list[str] = []

    def measure(case: Case, *_: object) -> list[Outcome]:
        measured.append(case.name)
        if len(measured) == 3:
            raise KeyboardInterrupt
        return run("2026", case.name).outcomes

    monkeypatch.setattr(command, "run_apart", measure)
    monkeypatch.setattr(command, "describe", lambda _: run("2026").machine)
    words = [word for case in CASES[:4] for word in ("--only", case.name)]
    with pytest.raises(KeyboardInterrupt):
        command.main([*words, "--quick", "--json", str(tmp_path / "run.json")])
    kept = read_run(tmp_path / "run.json")
    assert list(dict.fromkeys(outcome.case for outcome in kept.outcomes)) == measured[:2]
    assert not kept.complete
