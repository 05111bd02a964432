"""Consume mode: the same statement as a work queue. Pure cores: no I/O, no threads, time comes in as a number."""

__all__: list[str] = []
