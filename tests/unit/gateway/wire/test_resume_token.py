"""Resume tokens: valid for the tenant they were signed for, unchanged, and in this version only."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.support.resume_tokens import sign_token
from vedette.gateway.wire.resume_token import TOKEN_VERSION, ResumeToken, TokenSigner, subscription_hash

SIGNER = TokenSigner(b"k" * 32)
tokens = st.builds(
    ResumeToken,
    stream_key=st.binary(min_size=16, max_size=16),
    epoch=st.integers(-(2**63), 2**63 - 1),
    seqs=st.dictionaries(st.integers(0, 2**32 - 1), st.integers(0, 2**63 - 1), max_size=5),
    snapshot_pending=st.booleans(),
)


def test_the_format_is_pinned():
    """These bytes are held by clients. A change of the format needs a new TOKEN_VERSION."""
    text = SIGNER.sign("shop", bytes(range(16)), -7, 2**40 + 3, snapshot_pending=True)
    assert TOKEN_VERSION == 2
    assert text == "AgABAgMEBQYHCAkKCwwNDg__________-QAAAAEAAAAAAAABAAAAAAOeOd4UBhjx2PPgb6VW59SU"


@given(tokens, st.text(max_size=10))
def test_a_signed_token_is_verified(token: ResumeToken, tenant: str):
    assert SIGNER.verify(tenant, sign_token(SIGNER, tenant, token)) == token


def test_a_token_of_another_version_is_invalid():
    token = ResumeToken(stream_key=b"s" * 16, epoch=1, seqs={0: 1})
    assert SIGNER.verify("t", sign_token(SIGNER, "t", token, version=TOKEN_VERSION)) == token
    assert SIGNER.verify("t", sign_token(SIGNER, "t", token, version=TOKEN_VERSION - 1)) is None


@given(tokens, st.text(max_size=10), st.text(max_size=10))
def test_a_token_is_invalid_for_another_tenant(token: ResumeToken, tenant: str, other: str):
    if tenant != other:
        assert SIGNER.verify(other, sign_token(SIGNER, tenant, token)) is None


@given(tokens, st.data())
def test_a_token_with_a_changed_character_is_invalid(token: ResumeToken, data: st.DataObject):
    text = sign_token(SIGNER, "t", token)
    index = data.draw(st.integers(0, len(text) - 2))  # the last character may hold unused bits
    other = data.draw(st.sampled_from("ABCxyz019-_").filter(lambda c: c != text[index]))
    assert SIGNER.verify("t", text[:index] + other + text[index + 1 :]) is None


@given(st.text(max_size=200))
def test_any_other_text_is_invalid(text: str):
    assert SIGNER.verify("t", text) is None


def test_a_token_of_another_secret_is_invalid():
    token = ResumeToken(stream_key=b"s" * 16, epoch=1, seqs={0: 1})
    assert TokenSigner(b"x" * 32).verify("t", sign_token(SIGNER, "t", token)) is None


def test_the_parts_of_a_hash_do_not_run_together():
    assert subscription_hash("ab", "c") != subscription_hash("a", "bc")


@given(tokens, st.integers(0, 2**63 - 1), st.binary(min_size=16, max_size=200))
def test_a_position_of_partition_0_is_signed(token: ResumeToken, seq: int, secret: bytes):
    signer = TokenSigner(secret)
    text = signer.sign("t", token.stream_key, token.epoch, seq, snapshot_pending=token.snapshot_pending)
    assert signer.verify("t", text) == replace(token, seqs={0: seq})
