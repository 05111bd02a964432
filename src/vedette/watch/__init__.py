"""Watches: shapes and their key index, deltas, buffers, windows, and the hub that commits go through. No I/O."""

__all__: list[str] = []
