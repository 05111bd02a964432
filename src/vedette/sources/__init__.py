"""Sources of changes. Readers of databases append to a journal, durably and exactly once; `files` watches folders."""

__all__: list[str] = []
