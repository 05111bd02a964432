"""Readers of external collections and folders. Each reader appends changes to a journal, durably and exactly once."""

__all__: list[str] = []
