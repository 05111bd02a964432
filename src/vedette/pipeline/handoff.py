"""Partitions change hands when a gateway joins or leaves the ring (seed §3, Rebalance; ruling 18). Pure.

Theory of operation. The ring names the owner of each partition: who keeps its place (epoch, seq) and its replay window.
Deliveries themselves go to whoever holds the subscriptions; only ownership moves. So a move is short:

    steady ──ring changed──▶ draining   the donor takes what is on its way to it; nothing new is given to it alone
    draining ──place told──▶ broadcast  the donor said its last place, and it is handed to the recipient: for up to a
                                        second changes go to both, so that none falls between them
    draining ──donor gone──▶ broadcast  it cannot say; its last place is the one that everything is accepted up to
    broadcast ──caught up──▶ steady     the recipient has a place at or past the one that was handed over
    broadcast ──time over──▶ steady     it has had its second: it goes on from the place that it was handed

No gap: the recipient begins at the donor's place, and whatever came after it was sent to both. Repeats are dropped by
(partition, epoch, seq), since the recipient's desk starts at the place too. A second change of the ring in mid-move
begins the move anew, from whoever has the place by then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from vedette.pipeline.ring import Ring

__all__ = ["BROADCAST_SECONDS", "TRANSITIONS", "Handoffs", "Move", "Place", "partition_key"]

BROADCAST_SECONDS = 1.0
"""A handoff broadcast lasts so long at most."""
DRAIN_SECONDS = 1.0
"""A donor that says nothing for so long is taken for gone."""

State: TypeAlias = Literal["steady", "draining", "broadcast"]
Happening: TypeAlias = Literal["ring changed", "place told", "donor gone", "caught up", "time over"]

TRANSITIONS: Mapping[tuple[State, Happening], State] = {
    ("steady", "ring changed"): "draining",
    ("draining", "ring changed"): "draining",
    ("broadcast", "ring changed"): "draining",
    ("draining", "place told"): "broadcast",
    ("draining", "donor gone"): "broadcast",
    ("broadcast", "caught up"): "steady",
    ("broadcast", "time over"): "steady",
}


class Place(NamedTuple):
    """How far a partition was told."""

    epoch: int
    seq: int


def partition_key(partition: int) -> str:
    """What a partition is called on the ring."""
    return f"partition {partition}"


@dataclass(slots=True, kw_only=True)
class Move:
    """One partition and who owns it; while it moves, from whom and to whom."""

    partition: int
    owner: str | None
    """Who has the place: the donor until it is handed over; None when it is gone, or there was none yet."""
    recipient: str | None = None
    state: State = "steady"
    place: Place | None = None
    """What was handed over."""
    since: float = 0.0

    @property
    def targets(self) -> tuple[str, ...]:
        """Who is given the partition's changes as its owner, beside the gateways that hold the subscriptions."""
        both = (self.owner, self.recipient) if self.state == "broadcast" else (self.owner,)
        return tuple(dict.fromkeys(name for name in both if name is not None))


class HandOver(NamedTuple):
    """Tell the recipient: from here on it is yours, beginning after this place."""

    partition: int
    donor: str | None
    recipient: str
    place: Place


class Drain(NamedTuple):
    """Ask the donor to take what is on its way and say its last place."""

    partition: int
    donor: str


Instruction: TypeAlias = Drain | HandOver


class Handoffs:
    """The moves of all partitions. Feed it what happens; it says what to send."""

    def __init__(self) -> None:
        self.moves: dict[int, Move] = {}

    def ring_changed(self, ring: Ring, partitions: Iterable[int], now: float) -> list[Instruction]:
        """Gateways came or went, or partitions did."""
        known = set(partitions)
        for gone in self.moves.keys() - known:
            del self.moves[gone]
        found: list[Instruction] = []
        for partition in sorted(known):
            owner = ring.owner(partition_key(partition))
            move = self.moves.get(partition)
            if move is None:
                self.moves[partition] = Move(partition=partition, owner=owner)
                continue
            if move.owner not in ring.members:
                move.owner = None  # when it comes back it has missed something
            heading = move.recipient if move.state != "steady" else move.owner
            if owner is not None and owner != heading:
                found += self._begin(move, owner, now)
        return found

    def _begin(self, move: Move, recipient: str, now: float) -> list[Instruction]:
        self._go(move, "ring changed", now)
        move.recipient, move.place = recipient, None
        if recipient == move.owner:  # back to who had it
            move.state, move.recipient = "steady", None
            return []
        if move.owner is None:
            return []  # `tick` knows its place
        return [Drain(move.partition, move.owner)]

    def place_told(self, partition: int, donor: str, place: Place, now: float) -> list[Instruction]:
        """The donor has drained. Whoever is not, or no longer, asked is not heard."""
        move = self.moves.get(partition)
        if move is None or move.state != "draining" or move.owner != donor:
            return []
        return self._hand_over(move, "place told", place, now)

    def tick(self, accepted: Mapping[int, Place], members: Iterable[str], now: float) -> list[Instruction]:
        """`accepted`: up to where all of a partition is in somebody's hands. Ends what has lasted long enough."""
        there, found = set(members), []
        for move in self.moves.values():
            waited = now - move.since
            if move.state == "draining" and (move.owner not in there or waited >= DRAIN_SECONDS):
                place = accepted.get(move.partition, Place(0, 0))
                found += self._hand_over(move, "donor gone", place, now)
            elif move.state == "broadcast" and waited >= BROADCAST_SECONDS:
                self._settle(move, "time over", now)
        return found

    def caught_up(self, partition: int, recipient: str, place: Place, now: float) -> None:
        """The recipient says how far it is."""
        move = self.moves.get(partition)
        if move is None or move.state != "broadcast" or move.recipient != recipient or move.place is None:
            return
        if place >= move.place:
            self._settle(move, "caught up", now)

    def _hand_over(self, move: Move, happening: Happening, place: Place, now: float) -> list[Instruction]:
        assert move.recipient is not None
        self._go(move, happening, now)
        move.place = place
        return [HandOver(move.partition, move.owner, move.recipient, place)]

    def _settle(self, move: Move, happening: Happening, now: float) -> None:
        self._go(move, happening, now)
        move.owner, move.recipient, move.place = move.recipient, None, None

    def _go(self, move: Move, happening: Happening, now: float) -> None:
        move.state, move.since = TRANSITIONS[move.state, happening], now

    def validate(self) -> None:
        """Raise AssertionError unless every move makes sense; for tests."""
        for move in self.moves.values():
            assert (move.state == "steady") == (move.recipient is None), move
            assert (move.place is not None) == (move.state == "broadcast"), move
            assert move.recipient is None or move.recipient != move.owner, move
