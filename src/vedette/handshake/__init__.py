"""Flow control between folder watches, other sources, the file queue and the sink.

Each state machine is one module without I/O: a record and an observation in, a record or a decision out. Time and
randomness are parameters. Only `tables` does I/O. It applies a state machine to a row inside one transaction, so the
daemon, the command line and any SQLite tool see the same state.

    circuit_breaker, health    a breaker; the health of one watch
    failures, retry            kinds of failures; backoff delays and retries
    capacity, degradation      admission to the queue; load levels
    priority                   effective priority and fair claims
    error_patterns, exclusions what failures share; paths that are skipped
"""

__all__: list[str] = []
