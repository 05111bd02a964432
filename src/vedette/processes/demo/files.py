"""The sample folder of the demo: notes about a building site, to search and to edit."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from vedette.handshake.config import WatchFolderConfig
from vedette.handshake.tables import HandshakeTables
from vedette.handshake.tables.handshake_db import FILE_NAME

__all__ = ["COLLECTION", "FOLDER", "QUESTION", "WATCH_ID", "watch_samples"]

FOLDER: Final = "demo-files"
"""Name of the folder in the data directory."""
COLLECTION: Final = "demo"
WATCH_ID: Final = "demo"
QUESTION: Final = "what do we do when it rains"

_FILES: Final = {
    "README.md": """\
# The house on the hill

Notes of the people who build it. Change a file, and what you wrote can be found a moment later.

## Who to ask

Ada plans, Grace looks after the money, Linus is on the site every day.
""",
    "site-diary.md": """\
# Site diary

## Monday

The foundation is poured. It must stay moist for three days, so nobody walks on it.

## Tuesday

Heavy clouds all morning. When the weather turns wet we cover the open walls with sheets and work inside.

## Wednesday

The bricks came late. The mason sorted the broken ones out and sent them back.
""",
    "decisions.md": """\
# Decisions

## Windows

Three panes of glass. They cost more now and less to heat later.

## Roof

Slate instead of tiles: it is heavier, so the beams are one size stronger.
""",
    "costs.csv": "item,euro,paid\nconcrete,8400,yes\nbricks,12350,no\nslate,15900,no\nwindows,21000,no\n",
    "tools/estimate.py": '''\
"""How much a wall costs."""

BRICKS_PER_SQUARE_METRE = 60


def bricks_needed(width: float, height: float, openings: float = 0.0) -> int:
    """Doors and windows are openings: there are no bricks in them."""
    return round((width * height - openings) * BRICKS_PER_SQUARE_METRE * 1.05)
''',
}


def watch_samples(directory: Path) -> Path:
    """Write the files if they do not exist, watch the folder, and return it."""
    folder = directory / FOLDER
    if not folder.exists():
        for name, text in _FILES.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    with HandshakeTables(directory / FILE_NAME) as tables:
        if not any(row.watch_id == WATCH_ID for row in tables.watches()):
            place = str(folder.resolve())
            tables.add_watch(
                WatchFolderConfig(watch_id=WATCH_ID, path=place, collection=COLLECTION, debounce_seconds=0.5)
            )
    return folder
