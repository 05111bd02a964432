"""The plan for the target size: it holds, and plans with fewer resources fail."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.pipeline.scale import Figures, Load, plan, simulate

LOAD, FIGURES = Load(), Figures()


@pytest.mark.parametrize("seed", range(3))
def test_full_size_plan_survives_a_burst_and_two_failures(seed: int):
    found = simulate(plan(LOAD, FIGURES), LOAD, FIGURES, seed=seed)
    assert found.lost == 0
    assert found.p99_ms < 300 + 2 * 1000 * FIGURES.batch_seconds  # a batch may run twice
    assert found.behind_seconds < 2
    assert found.busiest_gateway < 0.6
    assert found.away_seconds < 15


def test_smaller_plan_fails():
    planned = plan(LOAD, FIGURES)
    slow = replace(FIGURES, matched_per_core=8_000.0)
    starved = simulate(replace(planned, executor_cores=2), LOAD, slow)
    assert starved.behind_seconds > 5
    crowded = simulate(replace(planned, gateways=2), LOAD, replace(FIGURES, frames_per_gateway=30_000.0))
    assert crowded.p99_ms > 1_000


def test_plan_grows_with_the_load():
    small, large = plan(Load(connections=100_000, events_per_second=1_000), FIGURES), plan(LOAD, FIGURES)
    assert small.gateways < large.gateways
    assert small.executor_cores <= large.executor_cores
    assert large.gateway_bytes <= FIGURES.connections_per_gateway * FIGURES.bytes_per_connection
    busy = plan(Load(connections=10_000, events_per_second=100_000, matches=20), FIGURES)
    assert busy.gateways > 10_000 / FIGURES.connections_per_gateway + 1, (
        "frames, not connections, decide here"
    )


def test_equal_seeds_give_equal_outcomes():
    planned = plan(LOAD, FIGURES)
    assert simulate(planned, LOAD, FIGURES, seconds=5, seed=9) == simulate(
        planned, LOAD, FIGURES, seconds=5, seed=9
    )
