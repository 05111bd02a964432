"""The start of a query is decided once; the last committed offset is not the last planned one."""

from __future__ import annotations

from pathlib import Path

from vedette.pipeline.checkpoint import delete_other_format, initial_offset, last_committed_offset
from vedette.sources.journal.seam import open_journal
from vedette.sources.records import Source, SourceEvent


def test_the_initial_offset_does_not_change(tmp_path: Path):
    journal = open_journal(tmp_path)
    journal.add_source(Source(name="shop", kind="mongodb", address=""))
    checkpoint = tmp_path / "checkpoint"
    for n in range(2):
        event = SourceEvent(event_id=f"e{n}", collection="c", key="k", after=b"{}", created=True, time_ms=0)
        journal.append("shop", [event], None)
        assert initial_offset(checkpoint, journal.address) == 1
    assert initial_offset(checkpoint, journal.address, start=0) == 1, "the stored offset takes precedence"
    assert initial_offset(tmp_path / "another", journal.address, start=0) == 0
    journal.close()


def test_the_text_of_the_start_file(tmp_path: Path):
    initial_offset(tmp_path / "checkpoint", "", start=517)
    assert (tmp_path / "checkpoint" / "start.json").read_text() == '{"format":2,"initial_offset":517}'


def test_a_checkpoint_of_another_format_is_deleted(tmp_path: Path):
    checkpoint = tmp_path / "checkpoint"
    assert not delete_other_format(checkpoint)
    initial_offset(checkpoint, "", start=5)
    assert not delete_other_format(checkpoint)
    assert delete_other_format(checkpoint, format=3)
    assert not checkpoint.exists()
    checkpoint.mkdir()
    (checkpoint / "first-offset").write_text("5")  # format 1
    assert delete_other_format(checkpoint)
    assert not checkpoint.exists()


def test_only_committed_batches_count(tmp_path: Path):
    assert last_committed_offset(tmp_path) is None
    for name in ("offsets", "commits"):
        (tmp_path / name).mkdir()
    for batch in range(12):
        (tmp_path / "offsets" / str(batch)).write_text(f'v1\n{{}}\n{{"offset": {batch * 10}}}')
    assert last_committed_offset(tmp_path) is None
    for batch in range(11):
        (tmp_path / "commits" / str(batch)).write_text("v1\n{}")
        (tmp_path / "commits" / f".{batch}.crc").write_text("")
    assert last_committed_offset(tmp_path) == {"offset": 100}
