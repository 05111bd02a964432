"""One module per command. What a command needs is imported when it runs, so that `vedette --help` is quick."""

from __future__ import annotations

__all__: list[str] = []
