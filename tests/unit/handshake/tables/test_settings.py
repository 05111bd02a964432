"""The handshake's numbers from the settings file of a data directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from vedette.errors import FolderError
from vedette.handshake.config import DegradationConfig
from vedette.handshake.degradation import LoadObservation
from vedette.handshake.tables.settings import HandshakeSettings, open_handshake_tables
from vedette.settings import load_settings
from vedette.testing import ManualClock

TEXT = """
embedder = "hashing"

[degradation]
memory_warning = 0.2
queue_depth_light = 10

[backoff]
max_delay_ms = 60000

[coordinator]
total_capacity = 50
max_per_watch = 40
min_per_watch = 5
"""


def test_defaults_without_a_file(tmp_path: Path) -> None:
    assert HandshakeSettings.load(tmp_path) == HandshakeSettings()
    assert HandshakeSettings().degradation == DegradationConfig()


def test_settings_take_effect(tmp_path: Path) -> None:
    (tmp_path / "vedette.toml").write_text(TEXT)
    assert load_settings(tmp_path).embedder == "hashing"
    tuning = HandshakeSettings.load(tmp_path)
    assert tuning.health.backoff.max_delay_ms == 60_000
    with open_handshake_tables(tmp_path, ManualClock()) as tables:
        decision = tables.system_state.check_load(LoadObservation(queue_depth=3, memory_usage=0.3), [])
        assert decision.state.level.label == "moderate"
        assert not tables.system_state.request_capacity("w", 41, 0).granted
        assert tables.system_state.request_capacity("w", 40, 0).granted


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[degradation]\nmemory = 0.2\n", "degradation.memory"),
        ("[degradation]\nmemory_warning = 'much'\n", "memory_warning"),
        ("[backoff]\nbase_delay_ms = 0\n", "base_delay_ms"),
        ("[coordinator]\nhigh_watermark = 1.5\n", "high_watermark"),
    ],
)
def test_invalid_settings_are_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "vedette.toml").write_text(text)
    with pytest.raises(FolderError, match=f"E4502 .*{words}"):
        HandshakeSettings.load(tmp_path)
