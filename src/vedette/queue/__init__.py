"""Turns the matches of consume-mode watches into work queues. Pure: no I/O, no threads; time is a parameter.

The element of a match is the first element of the pattern; ACK deletes it. Equal consume watches of one group share
a `MatchQueue`. Each matching element has one `QueueEntry` per queue, with one or several matches; the best-ranked
match is delivered. If a match follows from its element alone, the entry stores no row, and rank and row are
computed when needed (`LazyMatches`). State beyond "waits in one queue" (delivered, delayed, parked, in several
queues) is kept in a `QueuedElement`, which exists only as long as it is needed.

A new or changed match waits until its commit is durable, and with `deliver_on: tick` until the tick ends. Then it
enters the line, sorted by rank, then by arrival. With `serialize_by` there is one line per key. Only the head of a
key's line is deliverable, and only while no other element of that key is delivered or delayed in the group.

`Dispatcher.deliver` gives a consumer at most its fair share, within `buffer` and `max_in_flight`. A delivery claims
the element in all queues. It ends exactly once: finished (ACK or dead-lettered), requeued (NACK, expired lease,
release) or parked (could not be dead-lettered). Failed attempts are stored per element and group; claims are not
stored. If a delivered element stops matching, the delivery is withdrawn: ACK still deletes the element.

Reading order: `delivery`, `entry`, `line`, `match_queue`, `group`, `leases`, `dispatcher`; `reports` has the records
that clients see.
"""

__all__: list[str] = []
