"""Folders of files as a source: files created, changed, moved or deleted, also while no watcher was running.

A notification of the operating system is only a hint. The watcher compares the file with its last known state
(`file_state`), so a lost or duplicate notification does no harm: the next scan finds the change.
"""

__all__: list[str] = []
