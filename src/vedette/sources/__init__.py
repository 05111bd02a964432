"""Readers of external collections and folders: each appends what happened to a journal, durably and once."""

__all__: list[str] = []
