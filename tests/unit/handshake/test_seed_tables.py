"""Every row of every table in seeds/watch-queue-handshake.md, as ruled in spec/handshake.md."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from vedette.errors import FolderError
from vedette.handshake import config as configs
from vedette.handshake.circuit_breaker import CircuitState
from vedette.handshake.config import BackoffConfig, CoordinatorConfig, DegradationConfig, HealthConfig
from vedette.handshake.degradation import (
    Degradation,
    DegradationLevel,
    LoadObservation,
    apply_observation,
    decide_pauses,
    level_for_load,
    polling_multiplier,
)
from vedette.handshake.error_patterns import (
    ErrorPattern,
    PatternKey,
    PatternType,
    add_occurrence,
    pattern_keys,
)
from vedette.handshake.exclusions import Exclusion, ExclusionType, exclusion_from_pattern, find_exclusion
from vedette.handshake.failures import Failure, FailureKind, FaultDomain, classify_failure
from vedette.handshake.health import (
    AdmissionVerdict,
    DisabledBy,
    HealthStatus,
    WatchHealth,
    check_admission,
    disable,
    enable,
    end_cooldown,
    record_error,
    record_success,
    reset_errors,
)
from vedette.handshake.priority import effective_priority
from vedette.handshake.retry import backoff_delay, backoff_milliseconds, decide_retry

NOW = datetime(2024, 1, 1, 12, tzinfo=UTC)
CONFIG = HealthConfig()
L = DegradationLevel


def failed(
    health: WatchHealth, times: int = 1, now: datetime = NOW, config: HealthConfig = CONFIG
) -> WatchHealth:
    for _ in range(times):
        health = record_error(health, now, "it broke", config, Random(1))
        health.validate(config)
    return health


def succeeded(health: WatchHealth, times: int = 1, now: datetime = NOW) -> WatchHealth:
    for _ in range(times):
        health = record_success(health, now, CONFIG)
        health.validate(CONFIG)
    return health


# ---- Backoff Sequence


@pytest.mark.parametrize(
    ("errors", "seconds"),
    [(0, 0), (1, 2), (2, 4), (3, 8), (4, 16), (5, 32), (6, 64), (7, 128), (8, 256), (9, 300), (5_000, 300)],
)
def test_backoff_sequence(errors: int, seconds: int) -> None:
    assert backoff_milliseconds(errors, BackoffConfig()) == seconds * 1000


@pytest.mark.parametrize(("errors", "seconds"), [(1, 4), (6, 128), (8, 300), (9, 300)])
def test_a_network_error_doubles_the_backoff_within_the_cap(errors: int, seconds: int) -> None:
    assert backoff_milliseconds(errors, BackoffConfig(), network=True) == seconds * 1000


def test_jitter_goes_both_ways_and_may_exceed_the_cap() -> None:
    rng = Random(7)
    seconds = [backoff_delay(50, BackoffConfig(), rng).total_seconds() for _ in range(500)]
    assert 270 <= min(seconds) < 280
    assert 320 < max(seconds) <= 330


# ---- Health Status Transitions


@pytest.mark.parametrize(
    ("errors", "status"),
    [
        (0, "healthy"),
        (1, "degraded"),
        (2, "degraded"),
        (3, "backoff"),
        (5, "backoff"),
        (6, "backoff"),
        (19, "backoff"),
        (20, "disabled"),
        (25, "disabled"),
    ],
)
def test_health_by_errors_in_a_row(errors: int, status: str) -> None:
    health = failed(WatchHealth(), errors)
    assert (health.health_status, health.consecutive_errors, health.total_errors) == (status, errors, errors)


def test_the_function_of_the_seed_word_for_word() -> None:
    config = HealthConfig(legacy_disable_at=6)
    found = [failed(WatchHealth(), errors, config=config).health_status for errors in range(8)]
    words = "healthy degraded degraded backoff backoff backoff disabled disabled"
    assert [str(status) for status in found] == words.split()


def test_backoff_until_is_set_in_backoff_and_disabled_only() -> None:
    assert failed(WatchHealth(), 2).backoff_until is None
    waiting = failed(WatchHealth(), 3)
    assert waiting.backoff_until is not None
    assert timedelta(seconds=7.2) <= waiting.backoff_until - NOW <= timedelta(seconds=8.8)
    assert failed(WatchHealth(), 20).backoff_until == NOW + timedelta(hours=1)


def test_recovery_is_one_step_at_a_time() -> None:
    health = failed(WatchHealth(), 4)
    first = succeeded(health)
    assert (first.health_status, first.consecutive_errors, first.backoff_until) == ("degraded", 0, None)
    assert succeeded(first, 3).health_status == "degraded"
    assert succeeded(first, 4).health_status == "healthy"
    assert succeeded(first, 4).total_errors == 4


def test_an_error_starts_the_count_of_successes_again() -> None:
    health = succeeded(failed(succeeded(failed(WatchHealth()), 4)), 4)
    assert health.health_status == "degraded"
    assert succeeded(health).health_status == "healthy"


# ---- Circuit Breaker Thresholds


def test_fifty_errors_an_hour_open_the_circuit_though_files_succeed_in_between() -> None:
    health = WatchHealth()
    for number in range(49):
        health = succeeded(failed(health, now=NOW + timedelta(minutes=number)))
    assert health.circuit.state is CircuitState.CLOSED
    opened = failed(health, now=NOW + timedelta(minutes=50))
    assert (opened.health_status, opened.enabled, opened.disabled_by) == ("disabled", False, "circuit")
    late = failed(health, now=NOW + timedelta(minutes=61))
    assert late.circuit.state is CircuitState.CLOSED, "the first errors are out of the window"


def test_half_open_after_the_cooldown_closes_after_three_trials() -> None:
    opened = failed(WatchHealth(), 20)
    hour = NOW + timedelta(hours=1)
    assert end_cooldown(opened, hour - timedelta(milliseconds=1), CONFIG) is opened
    trying = end_cooldown(opened, hour, CONFIG)
    trying.validate(CONFIG)
    assert (trying.circuit.state, trying.health_status) == ("half_open", "backoff")
    assert check_admission(trying, hour, 0, CONFIG).verdict is AdmissionVerdict.PROBE
    assert check_admission(trying, hour, 1, CONFIG).verdict is AdmissionVerdict.WAIT
    assert succeeded(trying, 2).circuit.state is CircuitState.HALF_OPEN
    restored = succeeded(trying, 3)
    assert (restored.circuit.state, restored.health_status, restored.enabled) == ("closed", "degraded", True)
    assert succeeded(trying, 5).health_status == "healthy"


def test_a_failed_trial_starts_the_cooldown_again() -> None:
    trying = end_cooldown(failed(WatchHealth(), 20), NOW + timedelta(hours=1), CONFIG)
    again = failed(succeeded(trying, 2), now=NOW + timedelta(hours=1, seconds=5))
    assert again.circuit.state is CircuitState.OPEN
    assert again.backoff_until == NOW + timedelta(hours=2, seconds=5)


def test_reset_closes_the_circuit_and_keeps_enabled_and_enable_takes_it_up() -> None:
    opened = failed(WatchHealth(), 20)
    reset = reset_errors(opened, NOW)
    reset.validate(CONFIG)
    assert (reset.health_status, reset.circuit.state, reset.enabled) == ("healthy", "closed", False)
    assert (reset.total_errors, reset.last_error_message, reset.backoff_until) == (20, "it broke", None)
    assert check_admission(reset, NOW, 0, CONFIG).verdict is AdmissionVerdict.REFUSED
    assert check_admission(enable(reset, NOW), NOW, 0, CONFIG).is_allowed
    straight = enable(opened, NOW)
    straight.validate(CONFIG)
    assert (straight.health_status, straight.enabled, straight.disabled_by) == ("healthy", True, None)


def test_no_trial_runs_for_a_watch_that_a_user_disabled() -> None:
    off = disable(failed(WatchHealth(), 20))
    off.validate(CONFIG)
    assert off.disabled_by is DisabledBy.USER
    assert end_cooldown(off, NOW + timedelta(days=1), CONFIG) is off
    assert check_admission(off, NOW + timedelta(days=1), 0, CONFIG).verdict is AdmissionVerdict.REFUSED


def test_waiting_ends_with_the_backoff() -> None:
    health = failed(WatchHealth(), 3)
    assert health.backoff_until is not None
    waiting = check_admission(health, NOW, 0, CONFIG)
    assert (waiting.verdict, waiting.retry_at) == (AdmissionVerdict.WAIT, health.backoff_until)
    assert check_admission(health, health.backoff_until, 0, CONFIG).is_allowed


# ---- Level Definitions, Queue Depth Monitoring


@pytest.mark.parametrize(
    ("depth", "throughput", "memory", "level"),
    [
        (0, None, 0.0, L.NORMAL),
        (999, None, 0.0, L.NORMAL),
        (1_000, None, 0.0, L.LIGHT),
        (2_999, None, 0.0, L.LIGHT),
        (3_000, None, 0.0, L.MODERATE),
        (4_999, None, 0.0, L.MODERATE),
        (5_000, None, 0.0, L.SEVERE),
        (9_999, None, 0.0, L.SEVERE),
        (10_000, None, 0.0, L.CRITICAL),
        (10, 75.0, 0.0, L.NORMAL),
        (10, 74.9, 0.0, L.MODERATE),
        (10, 50.0, 0.0, L.MODERATE),
        (10, 49.9, 0.0, L.SEVERE),
        (1_500, 10.0, 0.0, L.SEVERE),  # a light queue does not hide a slow one
        (10, 0.0, 0.0, L.SEVERE),
        (0, None, 0.69, L.NORMAL),
        (0, None, 0.70, L.MODERATE),
        (0, None, 0.85, L.SEVERE),
        (10_000, None, 0.70, L.CRITICAL),
    ],
)
def test_asked_level(depth: int, throughput: float | None, memory: float, level: DegradationLevel) -> None:
    load = LoadObservation(queue_depth=depth, throughput=throughput, memory_usage=memory)
    assert level_for_load(load, DegradationConfig()) is level


def test_polling_multipliers() -> None:
    assert [polling_multiplier(level, DegradationConfig()) for level in L] == [1.0, 1.5, 2.0, 4.0, 10.0]


# ---- Priority-Based Actions

PAUSED = {L.NORMAL: -1, L.LIGHT: -1, L.MODERATE: 3, L.SEVERE: 5, L.CRITICAL: 8}


@pytest.mark.parametrize("level", list(L))
def test_who_is_paused(level: DegradationLevel) -> None:
    depth = [0, 1_000, 3_000, 5_000, 10_000][level]
    state = apply_observation(
        Degradation.initial(NOW), LoadObservation(queue_depth=depth), NOW, DegradationConfig()
    )
    watches = [(f"watch-{priority:02}", priority) for priority in range(11)]
    decision = decide_pauses(state, watches, DegradationConfig())
    assert decision.newly_paused == tuple(name for name, priority in watches if priority <= PAUSED[level])
    assert decision.resumed == ()
    again = decide_pauses(decision.state, watches[6:], DegradationConfig())
    assert set(again.resumed) == set(decision.newly_paused) & {name for name, _ in watches[:6]}


@pytest.mark.parametrize(
    ("priority", "errors", "last_success_minutes", "effective"),
    [
        (5, 0, None, 5),
        (5, 0, 59, 6),
        (5, 0, 60, 5),
        (10, 0, 1, 10),
        (5, 1, 1, 4),
        (5, 3, 1, 3),
        (0, 1, None, 0),
        (1, 3, None, 0),
        (10, 20, 1, 0),
    ],
)
def test_effective_priority(
    priority: int, errors: int, last_success_minutes: int | None, effective: int
) -> None:
    health = WatchHealth()
    if last_success_minutes is not None:
        health = succeeded(health, now=NOW - timedelta(minutes=last_success_minutes))
    assert effective_priority(priority, failed(health, errors), NOW) == effective


# ---- Recovery Process


def test_recovery_waits_for_the_cooldown_then_takes_three_checks_for_one_level() -> None:
    config, state = DegradationConfig(), Degradation.initial(NOW)
    state = apply_observation(state, LoadObservation(queue_depth=10_000), NOW, config)
    levels = []
    for second in range(10, 301, 10):
        state = apply_observation(
            state, LoadObservation(queue_depth=0), NOW + timedelta(seconds=second), config
        )
        state.validate(config)
        levels.append(state.level)
    changes = [10 * (at + 1) for at in range(1, len(levels)) if levels[at] != levels[at - 1]]
    assert changes == [80, 160, 240], "60 s at the level, then the third better check"
    assert levels[-1] is L.LIGHT


def test_a_check_that_is_not_better_starts_the_count_again() -> None:
    config, state = DegradationConfig(recovery_cooldown_seconds=0), Degradation.initial(NOW)
    for depth in (5_000, 0, 0, 5_000, 0, 0):
        state = apply_observation(state, LoadObservation(queue_depth=depth), NOW, config)
        assert state.level is L.SEVERE
    assert apply_observation(state, LoadObservation(queue_depth=0), NOW, config).level is L.MODERATE


# ---- Pattern Types


def failure(path: str = "/w/a.PDF", kind: FailureKind = FailureKind.DATA) -> Failure:
    return Failure(path=path, error_type="E4512", message="damaged " * 100, at=NOW, kind=kind)


def repeated(times: int, type: PatternType, kind: FailureKind = FailureKind.DATA) -> ErrorPattern:
    pattern: ErrorPattern | None = None
    for _ in range(times):
        (key,) = (key for key in pattern_keys(failure(kind=kind)) if key.type is type)
        pattern = add_occurrence(pattern, key, failure(kind=kind), configs.PatternConfig())
    assert pattern is not None
    return pattern


@pytest.mark.parametrize(
    ("type", "kind", "threshold"),
    [
        (PatternType.FILE_REPEATED, FailureKind.DATA, 5),
        (PatternType.FILE_TYPE, FailureKind.DATA, 10),
        (PatternType.TIME_BASED, FailureKind.DATA, 20),
        (PatternType.NETWORK, FailureKind.NETWORK, 10),
        (PatternType.PERMISSION, FailureKind.PERMISSION, 3),
    ],
)
def test_pattern_thresholds(type: PatternType, kind: FailureKind, threshold: int) -> None:
    before, at, after = (repeated(threshold + more, type, kind) for more in (-1, 0, 1))
    assert [each.is_systematic for each in (before, at, after)] == [False, True, True]
    assert before.confidence_score == pytest.approx((threshold - 1) / threshold)
    assert at.confidence_score == after.confidence_score == 1.0
    acted = exclusion_from_pattern(at, NOW)
    assert (acted is not None) == (type is PatternType.FILE_REPEATED)


def test_the_keys_of_a_failure() -> None:
    assert pattern_keys(failure("/w/x.tar.GZ")) == (
        PatternKey(PatternType.FILE_REPEATED, "/w/x.tar.GZ"),
        PatternKey(PatternType.FILE_TYPE, ".gz"),
        PatternKey(PatternType.TIME_BASED, "hour_12"),
    )
    assert pattern_keys(failure("/w/Makefile"))[1].value == "no_extension"


def test_the_exclusion_of_a_file_that_fails_again_and_again() -> None:
    made = exclusion_from_pattern(repeated(5, PatternType.FILE_REPEATED), NOW)
    assert made is not None
    assert (made.type, made.value, made.is_permanent, made.error_count) == ("file", "/w/a.PDF", True, 5)
    assert made.reason.startswith("Systematic failure: 5 errors - damaged")
    assert len(made.reason) < 140


# ---- Exclusion Management


@pytest.mark.parametrize(
    ("type", "value", "covered", "not_covered"),
    [
        ("file", "/w/a.txt", ["/w/a.txt"], ["/w/a.txt2", "/w/sub/a.txt"]),
        (
            "pattern",
            "*.corrupted",
            ["/w/x.corrupted", "/w/sub/y.corrupted"],
            ["/w/x.corrupted2", "/w/x.CORRUPTED"],
        ),
        ("directory", "/w/sub", ["/w/sub", "/w/sub/x", "/w/sub/y/z"], ["/w/subway/x", "/w/x"]),
    ],
)
def test_exclusions(type: str, value: str, covered: list[str], not_covered: list[str]) -> None:
    exclusion = Exclusion(
        type=ExclusionType(type),
        value=value,
        reason="by hand",
        error_count=0,
        created_at=NOW,
        is_permanent=True,
    )
    assert [path for path in covered + not_covered if find_exclusion([exclusion], path, NOW)] == covered


def test_an_exclusion_ends_when_it_says_so() -> None:
    end = NOW + timedelta(hours=1)
    exclusion = Exclusion(
        type=ExclusionType.FILE, value="/w/a", reason="for now", error_count=0, created_at=NOW, expires_at=end
    )
    assert find_exclusion([exclusion], "/w/a", end - timedelta(milliseconds=1)) is exclusion
    assert find_exclusion([exclusion], "/w/a", end) is None


@pytest.mark.parametrize("permanent", [False, True])
def test_an_exclusion_is_permanent_or_has_an_end(permanent: bool) -> None:
    end = NOW if permanent else None
    with pytest.raises(FolderError, match="E4502"):
        Exclusion(
            type=ExclusionType.FILE,
            value="/a",
            reason="r",
            error_count=0,
            created_at=NOW,
            expires_at=end,
            is_permanent=permanent,
        )


# ---- failures


@pytest.mark.parametrize(
    ("error_type", "message", "kind"),
    [
        ("FileNotFoundError", "[Errno 2] No such file or directory: 'x'", FailureKind.GONE),
        ("PermissionError", "[Errno 13] Permission denied", FailureKind.PERMISSION),
        ("ConnectionRefusedError", "refused", FailureKind.NETWORK),
        ("TimeoutError", "timed out", FailureKind.NETWORK),
        ("OSError", "Device or resource busy", FailureKind.RESOURCE),
        ("ValueError", "corrupt header", FailureKind.DATA),
        ("KeyError", "'x'", FailureKind.UNKNOWN),
    ],
)
def test_kinds_of_failures(error_type: str, message: str, kind: FailureKind) -> None:
    assert classify_failure(error_type, message) is kind


def test_who_is_charged_and_what_is_tried_again() -> None:
    table = {
        kind: (failure(kind=kind).policy.fault_domain, failure(kind=kind).policy.retry)
        for kind in FailureKind
    }
    assert table == {
        FailureKind.GONE: (FaultDomain.NONE, False),
        FailureKind.PERMISSION: (FaultDomain.WATCH, True),
        FailureKind.NETWORK: (FaultDomain.WATCH, True),
        FailureKind.RESOURCE: (FaultDomain.WATCH, True),
        FailureKind.DATA: (FaultDomain.WATCH, False),
        FailureKind.SINK: (FaultDomain.SINK, True),
        FailureKind.UNKNOWN: (FaultDomain.WATCH, True),
    }


def test_a_task_is_tried_five_times_unless_the_sink_was_down() -> None:
    def retries(kind: FailureKind) -> list[bool]:
        return [
            decide_retry(failure(kind=kind), count, BackoffConfig(), Random(1)).retry for count in range(1, 8)
        ]

    assert retries(FailureKind.RESOURCE) == [True] * 4 + [False] * 3
    assert retries(FailureKind.SINK) == [True] * 7
    assert retries(FailureKind.DATA) == [False] * 7


# ---- records


def test_the_configuration_record_of_the_seed() -> None:
    """Word for word, lists and texts and all."""
    config = configs.WatchFolderConfig(
        watch_id="my-project",
        path="/path/to/project",
        collection="my-project-code",
        patterns=["*.py", "*.js", "*.ts"],  # type: ignore[arg-type]
        ignore_patterns=[".git/*", "node_modules/*", "__pycache__/*"],  # type: ignore[arg-type]
        auto_ingest=True,
        recursive=True,
        recursive_depth=10,
        debounce_seconds=2.0,
        enabled=True,
        watch_type="project",  # type: ignore[arg-type]
        watch_priority=5,
    )
    assert config.patterns == ("*.py", "*.js", "*.ts")
    assert config.watch_type is configs.WatchType.PROJECT
    defaults = configs.WatchFolderConfig(watch_id="my-project", path="/path/to/project", collection="c")
    assert (config.debounce_seconds, config.watch_priority, config.recursive_depth) == (
        defaults.debounce_seconds,
        defaults.watch_priority,
        defaults.recursive_depth,
    )


def test_the_defaults_of_the_seed() -> None:
    watch = configs.WatchFolderConfig(watch_id="w", path="/p", collection="c")
    assert (watch.auto_ingest, watch.recursive, watch.recursive_depth, watch.debounce_seconds) == (
        True,
        True,
        10,
        2.0,
    )
    assert (watch.enabled, watch.watch_type, watch.watch_priority) == (True, "project", 5)
    assert BackoffConfig() == BackoffConfig(
        base_delay_ms=1000, max_delay_ms=300000, backoff_multiplier=2.0, jitter_factor=0.1
    )
    assert CoordinatorConfig() == CoordinatorConfig(
        total_capacity=10000, high_watermark=0.8, low_watermark=0.5
    )


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (configs.WatchFolderConfig, {"watch_id": "w", "path": "/p", "collection": "c", "watch_priority": 11}),
        (configs.WatchFolderConfig, {"watch_id": "w", "path": "/p", "collection": "c", "watch_priority": -1}),
        (
            configs.WatchFolderConfig,
            {"watch_id": "w", "path": "/p", "collection": "c", "watch_priority": True},
        ),
        (configs.WatchFolderConfig, {"watch_id": "w", "path": "p", "collection": "c"}),
        (configs.WatchFolderConfig, {"watch_id": " ", "path": "/p", "collection": "c"}),
        (
            configs.WatchFolderConfig,
            {"watch_id": "w", "path": "/p", "collection": "c", "recursive_depth": -2},
        ),
        (
            configs.WatchFolderConfig,
            {"watch_id": "w", "path": "/p", "collection": "c", "watch_type": "other"},
        ),
        (BackoffConfig, {"jitter_factor": 1.0}),
        (BackoffConfig, {"base_delay_ms": 2, "max_delay_ms": 1}),
        (BackoffConfig, {"backoff_multiplier": float("nan")}),
        (CoordinatorConfig, {"low_watermark": 0.9}),
        (DegradationConfig, {"queue_depth_light": 4_000}),
        (HealthConfig, {"backoff_at": 1}),
    ],
)
def test_what_makes_no_sense_is_refused(kind: type, values: dict[str, object]) -> None:
    with pytest.raises(FolderError, match="E4502"):
        kind(**values)


def test_the_names_of_health() -> None:
    assert [str(each) for each in HealthStatus] == ["healthy", "degraded", "backoff", "disabled"]
