"""Access policies: which operations an actor may perform, and what it may see. No I/O.

`decisions` compiles policies and decides single operations, `actor_view` filters reads, `guard` checks writes.
"""

__all__: list[str] = []
