"""Benchmarks of the pipeline: matching against many subscriptions, latency, and sustained rates."""

__all__: list[str] = []
