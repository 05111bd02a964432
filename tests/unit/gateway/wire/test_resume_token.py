"""Resume tokens: what goes in comes out, and nothing else is let in."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from vedette.gateway.wire.resume_token import ResumeToken, TokenSigner, subscription_hash

SEAL = TokenSigner(b"k" * 32)
tokens = st.builds(
    ResumeToken,
    stream_key=st.binary(min_size=16, max_size=16),
    epoch=st.integers(-(2**63), 2**63 - 1),
    seqs=st.dictionaries(st.integers(0, 2**32 - 1), st.integers(0, 2**63 - 1), max_size=5),
    snapshot_pending=st.booleans(),
)


@given(tokens, st.text(max_size=10))
def test_round_trip(token: ResumeToken, tenant: str):
    assert SEAL.verify(tenant, SEAL.sign_token(tenant, token)) == token


@given(tokens, st.text(max_size=10), st.text(max_size=10))
def test_for_another_tenant_it_is_no_token(token: ResumeToken, tenant: str, other: str):
    if tenant != other:
        assert SEAL.verify(other, SEAL.sign_token(tenant, token)) is None


@given(tokens, st.data())
def test_any_changed_character_spoils_it(token: ResumeToken, data: st.DataObject):
    text = SEAL.sign_token("t", token)
    place = data.draw(st.integers(0, len(text) - 2))  # the last one may hold unused bits
    other = data.draw(st.sampled_from("ABCxyz019-_").filter(lambda c: c != text[place]))
    assert SEAL.verify("t", text[:place] + other + text[place + 1 :]) is None


@given(st.text(max_size=200))
def test_any_text_is_a_token_or_none(text: str):
    assert SEAL.verify("t", text) is None


def test_another_secret_makes_other_tokens():
    token = ResumeToken(stream_key=b"s" * 16, epoch=1, seqs={0: 1})
    assert TokenSigner(b"x" * 32).verify("t", SEAL.sign_token("t", token)) is None


def test_parts_of_a_hash_do_not_run_into_each_other():
    assert subscription_hash("ab", "c") != subscription_hash("a", "bc")


@given(tokens, st.integers(0, 2**63 - 1), st.binary(min_size=16, max_size=200))
def test_the_short_way_makes_the_same_token(token: ResumeToken, seq: int, secret: bytes):
    seal = TokenSigner(secret)
    short = seal.sign("t", token.stream_key, token.epoch, seq, snapshot_pending=token.snapshot_pending)
    assert seal.verify("t", short) == replace(token, seqs={0: seq})
