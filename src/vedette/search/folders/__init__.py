"""Folder watches: keep the text of folders searchable.

    watcher (`vedette.sources.files`) ─FileChange▸ intake ─FileTask▸ file queue ─ClaimedTask▸ worker ▸ vector store

`daemon` runs all of this in one process; `daemon_api` is its socket for other processes. `sync` does one pass over a
folder without a daemon. `changes`, `outcomes` and `overlapping_watches` are rules that the daemon and `sync` share.
"""

from __future__ import annotations

__all__: list[str] = []
