"""Python clients: the methods of a session over the network, with automatic reconnects and resumes.

`RemoteSession` (`session`) is the asynchronous client. One task runs its connection; a `RemoteWatch` (`watch`) buffers
the events of one watch and checks that none is missing (`sequence`). `jobs` has the consume loop. `BlockingSession`
(`blocking`) runs a `RemoteSession` on a thread of its own.
"""

__all__: list[str] = []
