"""Pools: what equal consume watches wait for, in one line; members: the watches; groups: those who share the work."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from vedette.queue.entry import Delivery, LateWants, Place, Want
from vedette.queue.line import LongLine, SerialLine

__all__ = ["Group", "Member", "Pool"]

_GONE = 64
"""So many who are gone are a reason to close up."""
_STEP, _STEPS = 128, 8
"""So many are looked at then; and so many times as many, when more than half of the row is gone."""


class Group:
    """Interchangeable consumers. A watch without a group is one by itself."""

    __slots__ = ("_busy", "held", "key", "members", "name", "pools")

    def __init__(self, key: Hashable, name: str | None) -> None:
        self.key, self.name = key, name
        self.members: list[Member] = []
        self.pools: list[Pool] = []
        self.held = 0
        """Deliveries that its members have not ended yet."""
        self._busy: Counter[Hashable] = Counter()

    def is_busy(self, key: Hashable) -> bool:
        """Whether an item with this key (serialize_by) is under way."""
        return key in self._busy

    def hold(self, key: Hashable) -> None:
        self._busy[key] += 1

    def let_go(self, key: Hashable) -> None:
        self._busy[key] -= 1
        if not self._busy[key]:
            del self._busy[key]
            for pool in self.pools:
                pool.offer(key)


class Member:
    """A consumer: one watch, its bounds, and what it holds."""

    __slots__ = ("active", "bound", "group", "group_bound", "held", "number", "pool", "watch")

    def __init__(self, number: int, group: Group, *, bound: int, group_bound: int | None, watch: Any) -> None:
        self.number, self.group, self.watch = number, group, watch
        self.bound = bound
        """The most it may hold (`buffer`)."""
        self.group_bound = group_bound
        """The most its group may hold (`max_in_flight`)."""
        self.held: dict[str, Delivery] = {}
        self.active = True
        self.pool: Pool | None = None

    @property
    def has_room(self) -> bool:
        return self.active and len(self.held) < self.bound

    def share(self, limit: int | None) -> int:
        """How many one poll may hand out: a fair part of what is there (surface.md), within all bounds."""
        assert self.pool is not None
        group = self.group
        if not self.has_room:
            return 0
        rivals = sum(member.has_room for member in group.members)
        fair = max(1, -(-(len(self.pool) + group.held) // rivals) - len(self.held))
        room = min(fair, self.bound - len(self.held))
        if self.group_bound is not None:
            room = min(room, self.group_bound - group.held)
        return max(0, room if limit is None else min(room, limit))


class Pool:
    """All elements that match one statement, and those of them that may be handed out, in line."""

    __slots__ = (
        "_arriving",
        "_for_tick",
        "_gone",
        "_line",
        "_places",
        "_present",
        "_read",
        "_written",
        "group",
        "late",
        "members",
        "serialized",
        "source",
        "unwanted",
    )

    def __init__(self, group: Group, *, serialized: bool, source: Any) -> None:
        self.group = group
        self.source = source
        """What tells it of matches: the engine's watch that stands for all members."""
        self.serialized = serialized
        self.late: LateWants | None = None
        """Where matches are looked at late; else each place keeps its own."""
        self.members: list[Member] = []
        self._places: list[Place | None] = []
        """Everybody, as they came; who is gone is passed over, and closed up to little by little (`_close_up`)."""
        self._written = self._read = 0
        """`_places[_written:_read]` is empty."""
        self._present = self._gone = 0
        """How many are there, and how many are gone since `_close_up`."""
        self.unwanted: set[Any] | None = None
        """initial: none: matches that were there before, by identity."""
        self._line: LongLine | SerialLine = SerialLine(group.is_busy) if serialized else LongLine()
        self._arriving: deque[tuple[int, Place]] = deque()
        """Commits that are not durable yet, and the places they are about, in order."""
        self._for_tick: dict[Place, None] | None = None
        """deliver_on: tick: places that are new since the last one."""
        group.pools.append(self)

    def __len__(self) -> int:
        """How many wait to be handed out."""
        return len(self._line)

    def hold_for_ticks(self) -> None:
        """deliver_on: tick: what comes stands in line when logical time has moved on."""
        self._for_tick = {}

    def come(self, place: Place) -> None:
        """It matches, or otherwise than before: it may be handed out at the tick, where the pool waits for those."""
        if self._for_tick is not None:
            self._for_tick[place] = None
        else:
            self.arrive(place)

    def arrive(self, place: Place) -> None:
        """It may be handed out when its commit is durable; given back, it waits for no other tick than its first."""
        if not self._for_tick or place not in self._for_tick:
            self._arriving.append((place.sequence, place))

    def tick(self) -> None:
        if self._for_tick:
            self._arriving.extend((place.sequence, place) for place in self._for_tick)
            self._for_tick = {}

    @property
    def arriving(self) -> int:
        """How many are not in line yet, as far as anybody knows."""
        return len(self._arriving)

    def is_due(self, durable: int) -> bool:
        """Whether somebody could stand in line by now."""
        return bool(self._arriving) and self._arriving[0][0] <= durable

    def settle(self, durable: int, most: int | None = None) -> None:
        """Let everyone stand in line whose commit is durable, or so many of them."""
        arriving = self._arriving
        left = len(arriving) if most is None else min(most, len(arriving))
        while left and arriving[0][0] <= durable:
            left -= 1
            sequence, place = arriving.popleft()
            stale = place.sequence != sequence or place.waiting
            if not stale and place.wanted and place.available:
                self._line.put(place)

    def step_out(self, place: Place) -> None:
        self._line.discard(place)

    def pop(self, most: int) -> list[Place]:
        """Some of the first; fewer than asked for does not mean that nobody is left."""
        places: list[Any] = self._line.pop(most)
        return places

    def matches(self, places: Sequence[Place]) -> list[Mapping[str, Any]]:
        """What is handed out of each."""
        if self.late is not None:
            return self.late.matches([place.element for place in places])
        return [place.match for place in places]

    def offer(self, key: Hashable) -> None:
        """A key of serialize_by was let go of."""
        if isinstance(self._line, SerialLine):
            self._line.offer(key)

    @property
    def places(self) -> list[Place]:
        """Everybody who matches."""
        held = self._places[: self._written] + self._places[self._read :]
        return [place for place in held if place is not None and place.wanted]

    def add_place(self, element: str, arrival: int) -> Place:
        place = Place(element, self, arrival)
        self._places.append(place)
        self._present += 1
        return place

    def let_go(self, place: Place) -> None:
        """It matches no more."""
        place.clear()
        self._present -= 1
        self._gone += 1
        if self._gone >= _GONE or not self._present:
            self._close_up()

    def _close_up(self) -> None:
        """Go on along the row, and move those who are still there to where the others were.

        So about as much is kept of those who are gone as of those who are there, and nobody waits for all of it.
        """
        self._gone = 0
        if not self._present:
            self._forget_places()
        places = self._places
        for _ in range(_STEPS):
            step = places[self._read : self._read + _STEP]
            kept = [place for place in step if place is not None and place.wanted]
            places[self._read : self._read + _STEP] = [None] * len(step)
            places[self._written : self._written + len(kept)] = kept
            self._written += len(kept)
            self._read += _STEP
            if self._read >= len(places):
                del places[self._written :]
                self._written = self._read = 0
            if len(places) - (self._read - self._written) <= 2 * self._present + _STEP:
                return

    def _forget_places(self) -> None:
        self._places = []
        self._written = self._read = self._present = self._gone = 0

    def put(self, place: Place, want: Want | None) -> None:
        """A match appeared or looks different: it leaves the line until its commit is durable."""
        self._line.discard(place)
        place.put(want)

    def keep_wants(self) -> None:
        """Matches are looked at late no longer: each place keeps what it is now."""
        for place in self.places if self.late is not None else ():
            place.put(place.want)
        self.late = None

    def clear(self) -> None:
        """Nobody draws from it any more: let go of all places, which know it."""
        self._forget_places()
        self._arriving.clear()
        self._line = LongLine()
        self._for_tick = None

    def validate(self) -> None:
        """Raise AssertionError unless only what may be handed out stands in line; for tests."""
        self._line.validate()
        for place in self.places:
            assert place.wanted
            assert place.item is None or place in place.item.places
            assert not place.waiting or place.available
