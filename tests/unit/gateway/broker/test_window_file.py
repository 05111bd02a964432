"""The file `gateway.window`: its bytes are pinned, and a file that cannot be used is named in the log."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from vedette.gateway.broker.window_file import (
    VERSION,
    SavedEvent,
    SavedStream,
    SavedTenant,
    SavedWindows,
    encode_windows,
    take_windows,
    write_windows,
)

STREAM = SavedStream(
    key=bytes(range(16)),
    actor="u1",
    spec=b'{"watch":"WATCH t: Task RETURN t","params":{}}',
    claims_hash=b"\x01" * 16,
    position=7,
    evicted_seq=2**32 + 1,
    last_seq=2**32 + 3,
    seconds_left=120.5,
    events=(
        SavedEvent(seq=2**32 + 2, suffix=b',"partition":0}', age_seconds=1.25),
        SavedEvent(seq=2**32 + 3, suffix=b"{}", age_seconds=0.0),
    ),
)
OTHER = SavedStream(
    key=b"k" * 16, actor=None, spec=b"{}", claims_hash=None, position=0, evicted_seq=1, last_seq=1,
    seconds_left=3.0, events=(),
)  # fmt: skip
WINDOWS = SavedWindows(
    at_ms=1_767_323_045_000,
    tenants=(SavedTenant(tenant="shop", epoch=-5, commit_sequence=42, streams=(STREAM, OTHER)),),
)

GOLDEN = (
    b"\x83\xa7version\x03\xa5at_ms\xcf\x00\x00\x01\x9b|\xa9\x8c\x88\xa7tenants\x91\x84\xa6ten"
    b"ant\xa4shop\xa5epoch\xfb\xafcommit_sequence*\xa7streams\x92\x89\xaastream_key\xc4\x10"
    b"\x00\x01\x02\x03\x04\x05\x06\x07\x08\t\n\x0b\x0c\r\x0e\x0f\xa5actor\xa2u1\xa4spec\xc4.{"
    b'"watch":"WATCH t: Task RETURN t","params":{}}\xabclaims_hash\xc4\x10\x01\x01\x01\x01'
    b"\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\xa8position\x07\xabevicted_seq\xcf\x00"
    b"\x00\x00\x01\x00\x00\x00\x01\xa8last_seq\xcf\x00\x00\x00\x01\x00\x00\x00\x03\xacseconds"
    b"_left\xcb@^ \x00\x00\x00\x00\x00\xa6events\x92\x83\xa3seq\xcf\x00\x00\x00\x01\x00\x00"
    b'\x00\x02\xa6suffix\xc4\x0f,"partition":0}\xabage_seconds\xcb?\xf4\x00\x00\x00\x00\x00'
    b"\x00\x83\xa3seq\xcf\x00\x00\x00\x01\x00\x00\x00\x03\xa6suffix\xc4\x02{}\xabage_seconds"
    b"\xcb\x00\x00\x00\x00\x00\x00\x00\x00\x89\xaastream_key\xc4\x10kkkkkkkkkkkkkkkk\xa5actor"
    b"\xc0\xa4spec\xc4\x02{}\xabclaims_hash\xc0\xa8position\x00\xabevicted_seq\x01\xa8last_se"
    b"q\x01\xacseconds_left\xcb@\x08\x00\x00\x00\x00\x00\x00\xa6events\x90"
)


def test_the_format_is_pinned():
    """A change of these bytes needs a new VERSION."""
    assert VERSION == 3
    assert encode_windows(WINDOWS) == GOLDEN


def test_a_written_file_is_read_once(tmp_path: Path):
    path = tmp_path / "gateway.window"
    write_windows(path, WINDOWS)
    assert path.stat().st_mode & 0o777 == 0o600
    assert take_windows(path) == WINDOWS
    assert take_windows(path) is None
    assert not list(tmp_path.iterdir())


def test_an_older_version_is_ignored_and_named(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    path = tmp_path / "gateway.window"
    saved = msgspec.msgpack.decode(encode_windows(WINDOWS))
    path.write_bytes(msgspec.msgpack.encode({**saved, "version": 2, "tenants": "another form"}))
    assert take_windows(path) is None
    assert [record.getMessage() for record in caplog.records] == [
        f"{path} has version 2 instead of 3 and is ignored; clients cannot resume and subscribe again"
    ]
    assert not path.exists()


@pytest.mark.parametrize(
    "data", [b"", b"\xc1", encode_windows(WINDOWS)[:-3], msgspec.msgpack.encode([1, 2, []])]
)
def test_a_damaged_file_is_ignored_and_named(tmp_path: Path, caplog: pytest.LogCaptureFixture, data: bytes):
    path = tmp_path / "gateway.window"
    path.write_bytes(data)
    assert take_windows(path) is None
    assert [record.getMessage() for record in caplog.records] == [
        f"{path} is damaged and ignored; clients cannot resume and subscribe again"
    ]


def test_a_directory_that_cannot_be_written_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    write_windows(tmp_path / "missing" / "gateway.window", WINDOWS)
    assert [getattr(record, "action", None) for record in caplog.records] == ["window.save_failed"]
