"""Resume: exact, or refused with a reason; the connection is cut at every position."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.gateway_wire import SECRET, Client, Wire
from tests.support.resume_tokens import sign_token
from vedette.gateway.broker.broker import GatewayLost
from vedette.gateway.limits import GatewayLimits, ReplayLimits
from vedette.gateway.server.auth import AuthError, Grant
from vedette.gateway.wire.resume_token import ResumeToken, TokenSigner

ONTOLOGY = "node Task { n: Int = 0 } node Person { name: String }"
WATCH = {"watch": "WATCH t: Task WHERE t.n > 0 RETURN t.n"}
FILTER = {"collection": "Task", "filter": "doc.n > 0", "includeData": True, "sendSnapshot": True}


def make(**limits: Any) -> tuple[Wire, Client]:
    wire = Wire(limits=GatewayLimits(**limits))
    writer = wire.client()
    writer.define(ONTOLOGY)
    return wire, writer


def write(writer: Client, *numbers: int) -> None:
    for n in numbers:
        writer.execute("SPAWN t: Task { n = $n }", n=n)


def start(wire: Wire, asked: dict[str, Any] = WATCH, **more: Any) -> tuple[Client, str]:
    """A subscriber, and its token after the snapshot."""
    client = wire.client(**more)
    client.send("subscribe", asked, id="s")
    return client, client.all()[-1]["payload"]["resumeToken"]


def events(client: Client) -> list[dict[str, Any]]:
    return [m["payload"] for m in client.all() if m["type"] == "event"]


def resume(wire: Wire, token: str, last: Any = None, **more: Any) -> tuple[Client, dict[str, Any]]:
    client = wire.client(**more)
    client.send("resume", id="s", token=token, **({"lastSeq": last} if last is not None else {}))
    return client, client.take()


def body(event: dict[str, Any]) -> tuple[Any, ...]:
    return event["seq"], event["prevSeq"], str(event.get("payload", event.get("delta")))


# Replay before live, exactly


@pytest.mark.parametrize("asked", [WATCH, FILTER], ids=["watch", "filter"])
def test_missed_events_arrive_before_new_ones(asked: dict[str, Any]):
    wire, writer = make()
    client, token = start(wire, asked)
    uncut, _ = start(wire, asked)
    client.cut()
    write(writer, 1, 2)
    again, ack = resume(wire, token)
    assert (ack["type"], ack["status"], ack["subId"]) == ("resume-ack", "ok", "s")
    write(writer, 3)
    assert [body(e) for e in events(again)] == [body(e) for e in events(uncut)]
    wire.close()


@given(
    st.lists(st.sampled_from(["add", "change", "drop", "leave"]), min_size=1, max_size=12),
    st.data(),
    st.sampled_from([WATCH, FILTER]),
)
@settings(max_examples=40, deadline=None)
def test_a_resume_at_any_position_is_exact(moves: list[str], data: st.DataObject, asked: dict[str, Any]):
    """Received before the cut + resumed = uncut, whatever was cut off when; on either gateway."""
    wire, writer = make()
    wire.gateway()
    uncut, _ = start(wire, asked)
    client, token = start(wire, asked)
    received: list[dict[str, Any]] = []
    for move in moves:
        statement = {
            "add": "SPAWN t: Task { n = 1 }",
            "change": "MATCH t: Task SET t.n = t.n + 1",
            "drop": "MATCH t: Task WHERE t.n > 2 KILL t",
            "leave": "MATCH t: Task SET t.n = 0",
        }[move]
        writer.execute(statement)
        if data.draw(st.booleans()):
            fresh = events(client)
            kept = data.draw(st.integers(0, len(fresh)))  # the rest was in flight when the connection broke
            received += fresh[:kept]
            token = received[-1]["resumeToken"] if received else token
            client.cut()
            client, ack = resume(wire, token, gateway=data.draw(st.integers(0, 1)))
            assert ack["status"] == "ok"
    received += events(client)
    assert [body(e) for e in received] == [body(e) for e in events(uncut)]
    wire.close()


@given(st.integers(0, 30), st.integers(0, 30), st.integers(1, 8))
@settings(max_examples=40, deadline=None)
def test_a_resume_with_a_small_window_is_exact_or_refused(before: int, after: int, limit: int):
    wire, writer = make(window=ReplayLimits(events=limit))
    client, token = start(wire)
    write(writer, *range(1, before + 1))
    delivered = events(client)
    token = delivered[-1]["resumeToken"] if delivered else token
    client.cut()
    write(writer, *range(1, after + 1))
    again, ack = resume(wire, token)
    if after <= limit:
        assert ack["status"] == "ok"
        assert [e["payload"]["match"]["t.n"] for e in events(again)] == list(range(1, after + 1))
    else:
        assert (ack["status"], ack["reason"]) == ("resync-required", "window")
        write(writer, 1)
        assert events(again) == [], "a failed resume never starts at the head"
    wire.close()


@pytest.mark.parametrize("asked", [WATCH, FILTER], ids=["watch", "filter"])
def test_a_reopened_stream_cannot_be_resumed_with_an_old_token(asked: dict[str, Any]):
    """Changes without a stream are not numbered, so a position alone does not show that some were missed."""
    wire, writer = make()
    client, token = start(wire, asked)
    client.cut()
    wire.advance(1_000)
    write(writer, 1)
    start(wire, asked)
    _, ack = resume(wire, token)
    assert (ack["status"], ack["reason"]) == ("resync-required", "window")
    wire.close()


def test_replayed_events_are_the_original_ones():
    """Enter, update, leave and delete of what is gone by now are replayed as they were."""
    wire, writer = make()
    client, token = start(wire, FILTER)
    client.cut()
    for statement in (
        "SPAWN t: Task { n = 1 }",
        "MATCH t: Task SET t.n = 2",
        "MATCH t: Task SET t.n = 0",
        "MATCH t: Task SET t.n = 3",
        "MATCH t: Task KILL t",
    ):
        writer.execute(statement)
    again, _ = resume(wire, token)
    delivered = [(e["delta"]["reason"], e["delta"].get("document", {}).get("n")) for e in events(again)]
    assert delivered == [("enter", 1), ("update", 2), ("leave", None), ("enter", 3), ("delete", None)]
    wire.close()


def test_changes_of_one_document_have_distinct_seqs():
    wire, writer = make()
    client, _ = start(wire, FILTER)
    write(writer, 1)
    for n in (2, 3, 4):
        writer.execute("MATCH t: Task SET t.n = $n", n=n)
    delivered = events(client)
    assert len({(e["partition"], e["seq"]) for e in delivered}) == 4
    assert len({e["delta"]["id"] for e in delivered}) == 1
    wire.close()


def test_duplicates_are_recognized_by_their_seq():
    wire, writer = make()
    client, token = start(wire)
    write(writer, 1, 2, 3)
    seen = events(client)
    client.cut()
    again, ack = resume(wire, token)  # an old token: the client did not keep the later ones
    assert ack["fromSeq"] == seen[0]["prevSeq"] + 1
    assert [body(e) for e in events(again)] == [body(e) for e in seen]
    wire.close()


def test_a_lower_last_seq_replays_more():
    wire, writer = make()
    client, _ = start(wire)
    write(writer, 1, 2, 3)
    seen = events(client)
    client.cut()
    again, ack = resume(wire, seen[2]["resumeToken"], last=seen[0]["seq"])
    assert ack["status"] == "ok"
    assert [body(e) for e in events(again)] == [body(e) for e in seen[1:]]
    wire.close()


# Bounds: time, count, bytes


@pytest.mark.parametrize(
    ("bounds", "wait"),
    [
        (ReplayLimits(seconds=10), 11),
        (ReplayLimits(events=2), 0),
        (ReplayLimits(bytes=700), 0),
    ],
    ids=["time", "count", "bytes"],
)
def test_each_window_bound_limits_resumes(bounds: ReplayLimits, wait: float):
    wire, writer = make(window=bounds)
    stays, _ = start(wire)  # so that the stream itself lives on
    client, token = start(wire)
    client.cut()
    write(writer, 1, 2, 3)
    wire.advance(wait)
    _, ack = resume(wire, token)
    assert (ack["status"], ack["reason"]) == ("resync-required", "window")
    latest = events(stays)[-1]["resumeToken"]
    _, ack = resume(wire, latest)
    assert ack["status"] == "ok", "nothing was missed: that is no gap"
    wire.close()


def test_an_idle_stream_is_closed_at_its_deadline():
    wire, _writer = make(window=ReplayLimits(seconds=10))
    client, token = start(wire)
    client.cut()
    assert wire.broker.subscriptions.stream_count == 1
    wire.advance(11)
    assert wire.broker.subscriptions.stream_count == 0
    assert len(wire.vedette.default.watching.committed_index.watches) == 0
    _, ack = resume(wire, token)
    assert (ack["status"], ack["reason"]) == ("resync-required", "window")
    wire.close()


# Doubts


def other_epoch(token: ResumeToken) -> ResumeToken:
    return ResumeToken(stream_key=token.stream_key, epoch=token.epoch + 1, seqs=token.seqs)


def ahead(token: ResumeToken) -> ResumeToken:
    return ResumeToken(stream_key=token.stream_key, epoch=token.epoch, seqs={0: token.seqs[0] + 100})


def other_partition(token: ResumeToken) -> ResumeToken:
    return ResumeToken(stream_key=token.stream_key, epoch=token.epoch, seqs={3: token.seqs[0]})


def other_query(token: ResumeToken) -> ResumeToken:
    return ResumeToken(stream_key=b"?" * 16, epoch=token.epoch, seqs=token.seqs)


@pytest.mark.parametrize(
    ("change", "reason"),
    [(other_epoch, "generation"), (ahead, "gap"), (other_partition, "snapshot"), (other_query, "window")],
)
def test_a_token_that_does_not_match_is_refused_with_the_reason(
    change: Callable[[ResumeToken], ResumeToken], reason: str
):
    wire, writer = make()
    client, token = start(wire)
    client.cut()
    signer = TokenSigner(SECRET)
    verified = signer.verify("default", token)
    assert verified is not None
    again, ack = resume(wire, sign_token(signer, "default", change(verified)))
    assert (ack["status"], ack["reason"]) == ("resync-required", reason)
    write(writer, 1)
    assert events(again) == []
    wire.close()


def test_forged_tokens_and_positions_ahead_are_refused():
    wire, _writer = make()
    client, token = start(wire)
    client.cut()
    _, ack = resume(wire, token[:-3] + "AAA")
    assert (ack["status"], ack["reason"]) == ("resync-required", "generation")
    _, ack = resume(wire, token, last=2**40)
    assert (ack["status"], ack["reason"]) == ("resync-required", "gap")
    wire.close()


def test_a_token_from_before_the_snapshot_is_refused():
    wire, _ = make()
    client = wire.client()
    client.send("subscribe", WATCH, id="s")
    token = client.take()["payload"]["resumeToken"]
    client.cut()
    _, ack = resume(wire, token)
    assert (ack["status"], ack["reason"]) == ("resync-required", "snapshot")
    wire.close()


def test_a_changed_query_is_never_acknowledged():
    wire, _writer = make()
    client, token = start(wire)
    client.cut()
    again = wire.client()
    again.send("subscribe", {"watch": "WATCH t: Task RETURN t.n"}, id="s")
    again.all()
    again.send("resume", id="s", token=token)
    ack = again.take()
    assert (ack["status"], ack["reason"]) == ("resync-required", "query-changed")
    wire.close()


def test_subscribing_first_and_then_resuming_works():
    wire, writer = make()
    client, token = start(wire)
    client.cut()
    write(writer, 1, 2)
    again, _ = start(wire)
    again.send("resume", id="s", token=token)
    ack = again.take()
    assert ack["status"] == "ok"
    assert [e["payload"]["match"]["t.n"] for e in events(again)] == [1, 2]
    write(writer, 3)
    assert [e["payload"]["match"]["t.n"] for e in events(again)] == [3]
    wire.close()


def test_a_token_of_another_database_is_refused():
    wire, writer = make()
    client, token = start(wire)
    client.cut()
    wire.client("other").define(ONTOLOGY)
    again, ack = resume(wire, token, database="other")
    assert (ack["status"], ack["reason"]) == ("resync-required", "generation")
    write(writer, 1)
    assert events(again) == []
    wire.close()


class ByName:
    """An authenticator for tests: the token is the actor."""

    def authenticate(self, token: str, database: str | None) -> Grant:
        if not database or not token:
            raise AuthError("unauthorized", "invalid token")
        admin = token == "admin"
        return Grant(tenant=database, actor=None if admin else token, is_system=admin)


def test_a_deleted_actor_cannot_use_its_open_connection():
    wire = Wire(authenticator=ByName())
    admin = wire.client(token="admin")
    admin.define("node Person { name: String } node Task { n: Int = 0 }")
    admin.execute('SPAWN p: Person { name = "ada" }')
    ((ada,),) = admin.execute("MATCH p: Person RETURN p")["rows"]
    client = wire.client(token=ada["id"])
    client.send("subscribe", {"watch": "WATCH t: Task RETURN t.n"}, id="s")
    client.execute("SPAWN t: Task")
    client.all()
    admin.execute("MATCH p: Person KILL p")
    admin.execute("SPAWN t: Task")
    assert [m["payload"]["status"] for m in client.all()] == ["ended"]
    for more in ({}, {"script": True}):
        answer = client.ask("execute", {"statement": "SPAWN t: Task", **more})
        assert (answer["type"], answer["payload"]["code"]) == ("error", "E7003")
    assert admin.execute("MATCH t: Task RETURN COUNT(*)")["rows"] == [[2]]
    wire.close()


def test_a_resume_checks_the_rights_again():
    """Another actor with the token, and the same actor who may no longer: neither is let in."""
    wire = Wire(authenticator=ByName())
    admin = wire.client(token="admin")
    admin.define(
        ONTOLOGY
        + """
        policy watching: ON META SPAWN(_Watch) ALLOW IF true
        policy seeing: ON MATCH(t: Task) ALLOW IF true
        policy people: ON MATCH(p: Person) ALLOW IF true
        """
    )
    ada = admin.execute('SPAWN p: Person { name = "Ada" } RETURNING id')["rows"][0][0]
    bob = admin.execute('SPAWN p: Person { name = "Bob" } RETURNING id')["rows"][0][0]
    client, token = start(wire, token=ada)
    client.cut()
    _, ack = resume_as(wire, token, bob)
    assert (ack["status"], ack["reason"]) == ("resync-required", "auth")
    _, ack = resume_as(wire, token, ada)
    assert ack["status"] == "ok"
    gone = Client(wire, wire.routers[0])
    admin.execute("KILL #$id", id=ada)
    gone.send("auth", {"token": ada, "database": "default"}, id="a")
    assert gone.take()["payload"]["code"] == "E7003"
    assert gone.mailbox.closed is not None
    assert gone.mailbox.closed[0] == 4102
    wire.close()


def resume_as(wire: Wire, resume_token: str, actor: str) -> tuple[Client, dict[str, Any]]:
    client = wire.client(token=actor)
    client.send("resume", {"token": resume_token}, id="s")
    return client, client.take()


# Restarts


def test_after_a_crash_tokens_are_valid_and_the_window_is_lost(tmp_path: Path):
    first = Wire(str(tmp_path))
    writer = first.client()
    writer.define(ONTOLOGY)
    client, token = start(first)
    write(writer, 1)
    seq = events(client)[-1]["seq"]
    first.vedette.close()  # without time to write the window
    second = Wire(str(tmp_path))
    _, ack = resume(second, token)
    assert (ack["status"], ack["reason"]) == ("resync-required", "window")
    client, _ = start(second)
    write(second.client(), 2)
    assert events(client)[-1]["seq"] > seq
    second.close()


def test_clients_of_a_lost_gateway_resume_without_loss():
    """Its streams wait at the engine, and any other gateway replays them."""
    wire, writer = make()
    wire.gateway()
    _client, token = start(wire, gateway=1)
    ports: list[Any] = [each.port for each in wire.broker.subscriptions.clients.values()]
    port = next(each for each in ports if each.router is wire.routers[1])
    wire.broker.handle_event(GatewayLost(port))
    write(writer, 1, 2)
    again, ack = resume(wire, token, gateway=0)
    assert ack["status"] == "ok"
    assert [e["payload"]["match"]["t.n"] for e in events(again)] == [1, 2]
    wire.close()


# Claims


class Badges:
    """Tokens are roles with commas between; everybody is the same person."""

    def __init__(self) -> None:
        self.actor = ""

    def authenticate(self, token: str, database: str | None) -> Grant:
        claims = {"roles": token.split(",")} if token else {}
        return Grant(tenant=database or "", actor=self.actor, is_system=not self.actor, claims=claims)


@pytest.fixture
def badged() -> Iterator[Wire]:
    badges = Badges()
    wire = Wire(authenticator=badges)
    admin = wire.client()
    admin.define("node User { name: String } node Task { n: Int = 0 }")
    badges.actor = admin.execute('SPAWN u: User { name = "Ann" } RETURNING id')["rows"][0][0]
    yield wire
    wire.close()


CLEARED = "'clerk' in request.auth.roles && doc.n > 0"


def test_a_token_with_other_claims_requires_a_resync_of_bound_filters(badged: Wire):
    """A filter that does not use the token is not affected."""
    client = badged.client(token="clerk")
    client.send("subscribe", {"collection": "Task", "filter": CLEARED}, id="cleared")
    client.send("subscribe", {"collection": "Task", "filter": "doc.n > 0"}, id="plain")
    client.all()
    client.send("auth", {"token": "clerk", "database": "default"}, id="again")
    assert [m["type"] for m in client.all()] == ["auth_ack"], "the same claims change nothing"
    client.send("auth", {"token": "visitor", "database": "default"}, id="less")
    acknowledged, status = client.all()
    assert acknowledged["type"] == "auth_ack"
    assert (status["payload"]["subIds"], status["payload"]["reason"]) == (["cleared"], "auth")
    client.execute("SPAWN t: Task { n = 1 }")
    assert [m["payload"]["subId"] for m in client.all() if m["type"] == "event"] == ["plain"]
    client.send("subscribe", {"collection": "Task", "filter": CLEARED}, id="cleared")
    client.execute("SPAWN t: Task { n = 2 }")
    assert [m["payload"]["subId"] for m in client.all() if m["type"] == "event"] == ["plain"]


def test_a_filter_is_not_resumed_with_other_claims(badged: Wire):
    client = badged.client(token="clerk")
    client.send("subscribe", {"collection": "Task", "filter": CLEARED}, id="s")
    token = client.take()["payload"]["resumeToken"]
    client.cut()
    for badge, status in (("visitor", "resync-required"), ("clerk", "ok")):
        back = badged.client(token=badge)
        back.send("resume", {"token": token}, id="s")
        answer = back.take()
        assert (answer["status"], answer.get("reason")) == (status, "auth" if status != "ok" else None)
        back.cut()
