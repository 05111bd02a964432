"""How folders, other sources, the queue and the sink get along: health, backoff, breakers, capacity, degradation.

Each machine is one module without I/O: a record and an observation in, a record or a decision out. The moment and the
source of chance are parameters. `tables` is the one part that touches a disk: it applies a machine to a row inside one
transaction, so that daemon, command line and a curious person see one truth.
"""

__all__: list[str] = []
