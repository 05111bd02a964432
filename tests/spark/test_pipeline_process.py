"""The pipeline process on a real Spark: commits reach a gateway, also if the driver-side reader is killed."""

from __future__ import annotations

import errno
import json
import os
import signal
from pathlib import Path
from threading import Event as Flag
from threading import Thread
from typing import Any

import pytest

import vedette
from vedette.control.status import STATUS_FILE
from vedette.processes.pipeline_process import PipelineProcess
from vedette.sources.journal.seam import open_journal
from vedette.sources.records import Source
from vedette.subscriptions.registry.records import SubscriptionRequest
from vedette.subscriptions.registry.registry import SubscriptionRegistry
from vedette.subscriptions.spec import SubscriptionSpec
from vedette.testing.receiver import IngestReceiver
from vedette.transport.ingest_messages import DeliveredChange


class FullDiskOnce:
    """A compactor whose first publication fails because the disk is full."""

    def __init__(self, compactor: Any) -> None:
        self._compactor = compactor
        self._full = True

    def publish(self) -> Any:
        if self._full:
            self._full = False
            raise OSError(errno.ENOSPC, "no space left")
        return self._compactor.publish()

    @property
    def manifest(self) -> Any:
        return self._compactor.manifest


def test_commits_reach_a_gateway_also_when_the_driver_side_reader_is_killed(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    receiver = IngestReceiver(tmp_path / "in", secret="s")
    registry = SubscriptionRegistry(tmp_path)
    registry.acquire_lease("g1", receiver.address, 3600)
    spec = SubscriptionSpec(kind="watch", source="WATCH t: Task WHERE t.n > 1 RETURN t.title")
    request = SubscriptionRequest(id="w", tenant="default", collection="Task", boundary=0, spec=spec)
    (number,) = registry.register("g1", [request], 3600)
    stop = Flag()
    with vedette.open(tmp_path / "graph") as db:
        db.define("node Task { title: String, n: Int = 0 }")
        journal = open_journal(tmp_path)
        journal.add_source(Source(name="board", kind="graph", address=str(graph_file(tmp_path / "graph"))))
        process = PipelineProcess(tmp_path, secret="s", session=spark)
        monkeypatch.setattr(process._maintenance, "compactor", FullDiskOnce(process._compactor))
        thread = Thread(target=process.run, args=(stop,))
        thread.start()
        try:
            with db.session() as s:
                s.execute('SPAWN t: Task { title = "one", n = 2 }')
                assert receiver.wait_for(lambda: len(delivered(receiver)) == 1, 240)
                for pid in driver_side_readers(receiver):
                    os.kill(pid, signal.SIGKILL)
                s.execute('SPAWN t: Task { title = "not this", n = 1 }')
                s.execute('SPAWN t: Task { title = "two", n = 3 }')
                s.execute('MATCH t: Task WHERE t.title = "one" SET t.n = 7')
                s.execute('MATCH t: Task WHERE t.title = "one" SET t.title = "uno"')
                assert receiver.wait_for(lambda: len(delivered(receiver)) == 3, 240)
        finally:
            stop.set()
            thread.join()
    assert [(c.enter, c.update, c.leave) for c in delivered(receiver)] == [
        ([number], [], []),
        ([number], [], []),
        ([], [number], []),  # the change of n is not visible in RETURN
    ]
    assert process.restarts >= 1
    assert json.loads((tmp_path / STATUS_FILE).read_text())["state"] == "stopped"
    assert receiver.statuses, "the gateway received partition states"
    for opened in (registry, journal, receiver):
        opened.close()


def delivered(receiver: IngestReceiver) -> list[DeliveredChange]:
    """Return the changes without duplicates, in order. The first may be a backfill."""
    unique = {change.offset: change for change in receiver.changes}
    return [unique[offset] for offset in sorted(unique)]


def graph_file(folder: Path) -> Path:
    (found,) = [path for path in folder.rglob("*") if path.is_file() and b"SQLite" in path.read_bytes()[:16]]
    return found


def driver_side_readers(receiver: IngestReceiver) -> list[int]:
    """Return Python processes that Spark forked for this test and that never connected to a gateway."""
    parents: dict[int, tuple[int, str]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            command = (folder / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        parents[int(folder.name)] = (int(fields[1]), command)

    def is_descendant(pid: int) -> bool:
        while pid in parents and pid != os.getpid():
            pid = parents[pid][0]
        return pid == os.getpid()

    daemons = {
        pid for pid, (_, command) in parents.items() if "worker_daemon" in command and is_descendant(pid)
    }
    workers = {int(sender.split()[-1]) for sender in receiver.senders if sender.startswith("worker")}
    return [pid for pid, (parent, _) in parents.items() if parent in daemons and pid not in workers]
