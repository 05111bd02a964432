"""The hash ring: a member that leaves moves only its own keys."""

from __future__ import annotations

from vedette.transport.hash_ring import HashRing

KEYS = [f"key {n}" for n in range(300)]


def test_only_the_keys_of_a_removed_member_move():
    full, less = HashRing(["a", "b", "c", "d"]), HashRing(["a", "b", "d"])
    assert {key for key in KEYS if full.owner(key) == "c"} == {
        key for key in KEYS if full.owner(key) != less.owner(key)
    }
    shares = [sum(full.owner(key) == member for key in KEYS) for member in full.members]
    assert min(shares) > len(KEYS) / 4 / 2


def test_the_second_owner_takes_over_when_the_first_is_removed():
    ring = HashRing(["a", "b", "c", "d"])
    for key in KEYS[:50]:
        first, second, *rest = ring.owners(key, 4)
        assert len({first, second, *rest}) == 4
        assert HashRing(member for member in ring.members if member != first).owner(key) == second
    assert HashRing().owner("x") is None
    assert len(HashRing(["a"]).owners("x", 3)) == 1
