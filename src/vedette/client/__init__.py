"""Clients: the verbs of a session over the wire, that come back and resume by themselves."""

__all__: list[str] = []
