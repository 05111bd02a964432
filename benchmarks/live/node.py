"""Databases for Node, in their own Node process (benchmarks/node/live.mjs) that does the same work.

Only the command for a whole round and its answer are exchanged; changes and events stay inside Node.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.live.seam import HIGH, Change, Workload
from benchmarks.waiting import read_line

__all__ = ["NODE_FOLDER", "NodeLive"]

NODE_FOLDER = Path(__file__).parents[1] / "node"
_ANSWER_SECONDS = 600.0
"""Time limit for one command, which is a whole round."""


class NodeLive:
    """`engine`: surrealdb or pglite."""

    def __init__(self, workload: Workload, *, engine: str) -> None:
        node = shutil.which("node")
        if node is None or not (NODE_FOLDER / "node_modules").is_dir():
            raise RuntimeError(
                "no Node.js, or its packages are not installed: scripts/ensure-benchmark-peers"
            )
        self._process = subprocess.Popen(
            [node, "live.mjs", engine],
            cwd=NODE_FOLDER,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        asked = {"pattern": workload.pattern, "watches": workload.watches, "high": HIGH}
        self._ask({"do": "start", "ranks": workload.first_ranks(), **asked})

    def change(self, changes: Sequence[Change]) -> int:
        return int(self._ask({"do": "change", "changes": changes})["seen"])

    def delays(self, count: int, per_second: int) -> list[float]:
        """Return the seconds from each of `count` changes to its event, at this rate."""
        return [
            float(delay)
            for delay in self._ask({"do": "delays", "count": count, "pace": per_second})["delays"]
        ]

    def _ask(self, command: dict[str, Any]) -> dict[str, Any]:
        reading, writing = self._process.stdout, self._process.stdin
        assert reading is not None
        assert writing is not None
        writing.write(msgspec.json.encode(command) + b"\n")
        writing.flush()
        line = read_line(reading, f"the answer of Node to `{command['do']}`", _ANSWER_SECONDS)
        if not line:
            raise RuntimeError("the Node process ended")
        answer = msgspec.json.decode(line, type=dict[str, Any])
        if "problem" in answer:
            raise RuntimeError(answer["problem"])
        return answer

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
