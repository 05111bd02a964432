"""Resumes: accepted if every later event is in the window, otherwise refused with a reason."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.support.gateway_streams import StreamBench
from tests.support.resume_tokens import sign_token
from vedette.gateway.broker.resume import StreamResumer
from vedette.gateway.wire import broker_link as link
from vedette.gateway.wire.resume_token import ResumeToken, TokenSigner

SIGNER = TokenSigner(b"k" * 32)


class ResumeBench(StreamBench):
    def __init__(self) -> None:
        super().__init__()
        self.resumer = StreamResumer(self.send_queue, self.subscriptions, self.pump)
        self.resumed = self.stream()
        self.start = self.resumed.history.last_seq
        self.seqs = [self.resumed.append(b'"payload"', {"n": n}, 1).seq for n in range(3)]

    def resume(self, seq: int, last_seq: dict[int, int] | None = None, **fields: Any) -> list[Any]:
        client = self.subscriptions.clients.get((self.port, 1)) or self.client()
        assert self.resumed.stream_key is not None
        epoch = self.tenant.database.epoch
        content = {"stream_key": self.resumed.stream_key, "epoch": epoch, "seqs": {0: seq}, **fields}
        text = sign_token(SIGNER, "default", ResumeToken(**content))
        self.resumer.resume(
            client, link.ResumeRequest(conn=1, id="r", sub_id="s", token=text, last_seq=last_seq)
        )
        return self.send_queue.drain()[self.port]


def test_the_events_after_the_token_are_replayed():
    bench = ResumeBench()
    subscribed, replayed = bench.resume(bench.seqs[0])
    assert isinstance(subscribed, link.Subscribed)
    assert subscribed.replay_follows
    assert [seq for seq, _ in replayed.events] == bench.seqs[1:]
    assert bench.resumer.outcomes == {"ok": 1}


def test_a_last_seq_can_only_move_the_position_back():
    bench = ResumeBench()
    assert [seq for seq, _ in bench.resume(bench.seqs[1], {0: bench.start})[1].events] == bench.seqs
    assert [seq for seq, _ in bench.resume(bench.seqs[0], {0: bench.seqs[2]})[1].events] == bench.seqs[1:]


@pytest.mark.parametrize(
    ("fields", "offset", "reason"),
    [
        ({"epoch": -1}, 0, "generation"),
        ({"snapshot_pending": True}, 0, "snapshot"),
        ({"seqs": {1: 5}}, 0, "snapshot"),
        ({"stream_key": b"x" * 16}, 0, "window"),
        ({}, 99, "gap"),
        ({}, -99, "window"),
    ],
)
def test_a_token_that_does_not_match_is_refused(fields: dict[str, Any], offset: int, reason: str):
    bench = ResumeBench()
    (reply,) = bench.resume(bench.seqs[0] + offset, **fields)
    answer = msgspec.json.decode(reply.data)
    assert (answer["id"], answer["status"], answer["reason"]) == ("r", "resync-required", reason)
    assert bench.resumer.outcomes == {reason: 1}


def test_a_stream_of_another_actor_is_refused():
    bench = ResumeBench()
    bench.resumed.actor = "u1"
    (reply,) = bench.resume(bench.seqs[0])
    assert msgspec.json.decode(reply.data)["reason"] == "auth"


def test_a_lagging_subscription_is_replayed_or_must_resync():
    bench = ResumeBench()
    client = bench.client()
    bench.subscriptions.add(client, "s", bench.resumed)
    bench.resumer.replay(client, link.ReplayRequest(conn=1, sub_id="s", seq=bench.seqs[1]))
    bench.resumer.replay(client, link.ReplayRequest(conn=1, sub_id="s", seq=bench.start - 1))
    bench.resumer.replay(client, link.ReplayRequest(conn=1, sub_id="unknown", seq=0))
    replayed, resync = bench.send_queue.drain()[bench.port]
    assert isinstance(replayed, link.ReplayedEvents)
    assert [seq for seq, _ in replayed.events] == bench.seqs[2:]
    assert resync == link.ResyncRequired(conn=1, sub_id="s", reason="window")
