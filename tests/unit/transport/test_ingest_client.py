"""Deliveries are split so that a gateway accepts each frame, and no change is lost between them."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any, cast

import pytest

from vedette.transport import ingest_client as ingest_link
from vedette.transport.ingest_client import IngestClient
from vedette.transport.ingest_messages import Deliver, DeliveredChange, FrameReader, WindowResult

MOST = 10_000
"""What a portion may weigh in these tests."""


class Socket:
    """Keeps what was sent."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def sendall(self, data: bytes) -> None:
        self.sent.append(data)


def change(seq: int, **more: Any) -> DeliveredChange:
    values: dict[str, Any] = {
        "key": "k",
        "op": "update",
        "partition": 1,
        "epoch": 1,
        "offset": seq,
        "time_ms": 0,
    }
    return DeliveredChange(tenant="t", collection="c", seq=seq, **(values | more))


def sent(send: Callable[[IngestClient], None]) -> tuple[list[Deliver], int]:
    """The frames, and the bytes of the largest one."""
    kept = Socket()
    send(IngestClient(cast("socket.socket", kept), "here"))
    frames = [frame for data in kept.sent for frame in FrameReader().feed(data)]
    assert [frame.number for frame in frames if isinstance(frame, Deliver)] == [*range(1, len(frames) + 1)]
    return cast("list[Deliver]", frames), max(map(len, kept.sent))


@pytest.fixture(autouse=True)
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest_link, "MAX_CHUNK_BYTES", MOST)


@pytest.mark.parametrize(
    "more",
    [
        {"update": [2**40 + n for n in range(100)]},
        {"enter": [2**40] * 30, "update": [2**40] * 30, "leave": [2**40] * 30},
        {"before": b"x" * 500, "after": b"x" * 500},
        {"key": "€" * 300},
    ],
    ids=["one list", "three lists", "images", "key"],
)
def test_deliveries_are_split_by_the_size_of_their_changes(more: dict[str, Any]):
    changes = [change(seq, **more) for seq in range(1, 101)]
    frames, largest = sent(lambda link: link.send_changes(changes))
    assert [each for frame in frames for each in frame.changes] == changes
    assert largest < 2 * MOST
    assert len(frames) < 20, "and no more often than needed"


def test_deliveries_are_split_by_the_size_of_window_results():
    delivered = [WindowResult(subscription=n, position=1, payload=b"x" * 1000) for n in range(1, 101)]
    frames, largest = sent(lambda link: link.send_window_events(delivered))
    assert [each for frame in frames for each in frame.windows] == delivered
    assert largest < 2 * MOST


def test_a_change_above_the_limit_is_sent_alone():
    changes = [change(1), change(2, update=[2**40] * MOST), change(3), change(4)]
    frames, _ = sent(lambda link: link.send_changes(changes))
    assert [[each.seq for each in frame.changes] for frame in frames] == [[1], [2], [3, 4]]


def test_deliveries_are_split_by_their_number_of_changes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ingest_link, "MAX_FRAME_CHANGES", 3)
    frames, _ = sent(lambda link: link.send_changes([change(seq) for seq in range(1, 8)]))
    assert [len(frame.changes) for frame in frames] == [3, 3, 1]
    frames, _ = sent(
        lambda link: link.send_window_events(
            [WindowResult(subscription=n, position=1, payload=b"") for n in range(7)]
        )
    )
    assert [len(frame.windows) for frame in frames] == [3, 3, 1]
