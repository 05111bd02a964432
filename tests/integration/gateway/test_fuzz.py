"""Garbage of every kind from one connection: each message is answered, nothing crashes, others are served."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.gateway_wire import Wire
from vedette.gateway.wire.messages import MESSAGE_TYPES

words = st.sampled_from(
    [
        "",
        "s",
        "t",
        "WATCH t: Task RETURN t",
        "MATCH t: Task RETURN t",
        "BEGIN",
        "COMMIT",
        "Task",
        "doc.n > 1",
        "pause",
    ]
)
scalars = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | words | st.text(max_size=5)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(words | st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)
fields = st.sampled_from(
    """token database version watch params attach query collection filter filters includeData sendSnapshot priority
    prefetch maxUnacked exclusive id lastSeq subId statement ontology partition seq deliveryId retry delay by operation
    options orderBy limit startAfter field op value""".split()
)
payloads = st.dictionaries(fields, values, max_size=5)
messages = st.fixed_dictionaries(
    {"type": st.sampled_from(sorted(MESSAGE_TYPES)) | st.text(max_size=6)},
    optional={"id": words | values, "payload": payloads | values, "token": values, "lastSeq": values},
)


def encode(message: Any) -> str:
    return json.dumps(message)


@given(
    st.lists(messages.map(encode) | st.binary(max_size=60) | st.text(max_size=40), max_size=15), st.booleans()
)
@settings(max_examples=150, deadline=None)
@pytest.mark.timeout(
    900
)  # cut off by a timeout on a crowded machine, Hypothesis would speak of flaky strategies
def test_any_sequence_of_messages_is_answered(script: list[bytes | str], authenticated: bool):
    wire = Wire()
    bystander = wire.client()
    bystander.define("node Task { n: Int = 0 }")
    bystander.send("subscribe", {"watch": "WATCH t: Task RETURN t.n"}, id="s")
    bystander.all()
    attacker = wire.client("default" if authenticated else "")
    for frame in script:
        if attacker.mailbox.closed is not None:
            attacker = wire.client()
        attacker.raw(frame)
        for answer in attacker.all():
            payload = answer.get("payload") or {}
            assert payload.get("code") != "internal", (frame, answer)
            assert "Traceback" not in json.dumps(answer)
    attacker.cut()
    bystander.execute("SPAWN t: Task { n = 41 }")
    delivered = [m["payload"]["payload"] for m in bystander.all() if m["type"] == "event"]
    assert any(event.get("match") == {"t.n": 41} for event in delivered)
    wire.close()
