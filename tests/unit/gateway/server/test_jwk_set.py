"""The JWK set: which keys it accepts, how it finds one, and when it is refreshed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vedette.errors import SettingsError
from vedette.gateway.server.jwk_set import MIN_REFRESH_SECONDS, REFRESH_SECONDS, JwkSet, load_from
from vedette.testing import ManualClock

SECRET = "a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s"


def shared_key(kid: str | None = None, **fields: Any) -> dict[str, Any]:
    named = {} if kid is None else {"kid": kid}
    return {"kty": "oct", "k": SECRET, **named, **fields}


def jwk_set(*keys: Any, clock: ManualClock | None = None) -> JwkSet:
    return JwkSet(lambda: {"keys": list(keys)}, clock or ManualClock())


def test_a_key_is_found_by_its_id():
    keys = jwk_set(shared_key("one"), shared_key("two"))
    found = keys.find("two")
    assert found is not None
    assert found[0] == "HS256"
    assert keys.find("three") is None


def test_a_token_without_key_id_uses_the_only_key():
    found = jwk_set(shared_key("one")).find(None)
    assert found is not None
    assert found[0] == "HS256"


def test_a_token_without_key_id_is_ambiguous_with_several_keys():
    assert jwk_set(shared_key("one"), shared_key("two")).find(None) is None


def test_an_unknown_key_id_never_selects_the_only_key():
    assert jwk_set(shared_key("one")).find("two") is None


@pytest.mark.parametrize("other", [{"use": "enc"}, {"alg": "HS512"}, {"kty": "EC"}])
def test_keys_for_other_purposes_are_ignored(other: dict[str, str]):
    keys = jwk_set(shared_key("one"), shared_key("two", **other))
    assert keys.find("two") is None
    assert keys.find("one") is not None


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ([], r"must be an object \{\"keys\""),
        ({"keys": {}}, r"must be an object \{\"keys\""),
        ({"keys": []}, "no key for HS256, RS256 or EdDSA"),
        ({"keys": [shared_key(kid=7)]}, "the kid of key 0 is not a string"),  # type: ignore[arg-type]
        ({"keys": [{"kty": "oct"}]}, "key 0 is invalid"),
    ],
)
def test_an_invalid_set_is_rejected_with_the_reason(document: Any, reason: str):
    with pytest.raises(SettingsError, match=f"auth_keys.*{reason}"):
        JwkSet(lambda: document, ManualClock())


def test_the_set_is_due_after_the_refresh_interval():
    clock = ManualClock()
    keys = jwk_set(shared_key("one"), clock=clock)
    due = []
    for seconds in (REFRESH_SECONDS, 1):
        clock.advance(seconds)
        due.append(keys.needs_refresh)
    keys.refresh()
    assert [*due, keys.needs_refresh] == [False, True, False]


def test_an_unknown_key_id_makes_the_set_due_after_the_minimum_interval():
    clock = ManualClock()
    keys = jwk_set(shared_key("one"), clock=clock)
    keys.find("two")
    due = []
    for seconds in (MIN_REFRESH_SECONDS, 1):
        clock.advance(seconds)
        due.append(keys.needs_refresh)
    assert due == [False, True]


def test_known_key_ids_do_not_make_the_set_due():
    clock = ManualClock()
    keys = jwk_set(shared_key("one"), clock=clock)
    keys.find("one")
    keys.find(None)
    clock.advance(MIN_REFRESH_SECONDS + 1)
    assert not keys.needs_refresh


def test_known_keys_stay_in_use_if_a_refresh_fails():
    documents: list[Any] = [{"keys": [shared_key("one")]}, {"keys": []}]
    keys = JwkSet(lambda: documents.pop(0), ManualClock())
    with pytest.raises(SettingsError):
        keys.refresh()
    assert keys.find("one") is not None


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path):
    path = tmp_path / "keys.json"
    load = load_from(str(path), ManualClock())
    with pytest.raises(SettingsError, match=r"keys\.json cannot be read: FileNotFoundError"):
        load()
    path.write_text("{")
    with pytest.raises(SettingsError, match=r"keys\.json cannot be read: JSONDecodeError"):
        load()
    path.write_text('{"keys": []}')
    assert load() == {"keys": []}
