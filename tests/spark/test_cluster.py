"""A standalone cluster on loopback with one master and two workers: a killed worker loses no change."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Event as Flag

import pytest

from tests.spark.conftest import Shop
from tests.spark.processes import free_port
from tests.spark.test_changes import complete
from vedette.pipeline.session import DRIVER_JAVA_OPTIONS

DRIVER = """
import sys
from pathlib import Path
from vedette.pipeline.task import PipelineConfig
from vedette.pipeline.session import DRIVER_JAVA_OPTIONS, open_session
from vedette.pipeline.queries.changes import start_changes_query

master, folder = sys.argv[1], Path(sys.argv[2])
config = PipelineConfig(
    journal_url=str(folder / "collections.db"),
    registry_url=str(folder / "subscriptions.db"),
    index_folder=folder / "index",
    ingest_secret="s",
)
session = open_session(
    master,
    ui=False,
    extra_conf={
        "spark.executor.memory": "512m",
        "spark.cores.max": "2",
        "spark.task.maxFailures": "8",
        "spark.driver.extraJavaOptions": DRIVER_JAVA_OPTIONS,
        "spark.executor.extraJavaOptions": DRIVER_JAVA_OPTIONS,
    },
)
query = start_changes_query(session, config, folder / "checkpoint", start=0)
query.awaitTermination()
"""


def spark_class() -> Path:
    import pyspark

    return Path(pyspark.__file__).parent / "bin" / "spark-class"


@contextmanager
def started(folder: Path, name: str, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    environment = {
        **os.environ,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_DAEMON_JAVA_OPTS": DRIVER_JAVA_OPTIONS,
    }
    with (folder / f"{name}.log").open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )
    try:
        yield process
    finally:
        kill_group(process, signal.SIGKILL)


def kill_group(process: subprocess.Popen[bytes], number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
    process.wait()


@contextmanager
def cluster(folder: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Start one master and two workers of one core each. Yields the address of the master, and one of the workers."""
    if shutil.which("java") is None:
        pytest.skip("no Java")
    port, program = free_port(), str(spark_class())
    address, deploy = f"spark://127.0.0.1:{port}", "org.apache.spark.deploy"
    master = (program, f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port))
    worker = (program, f"{deploy}.worker.Worker", "--host", "127.0.0.1", "--cores", "1", "--memory", "1g")
    with (
        started(folder, "master", *master, "--webui-port", "0"),
        started(
            folder, "one", *worker, "--webui-port", "0", "--work-dir", str(folder / "w1"), address
        ) as first,
        started(folder, "two", *worker, "--webui-port", "0", "--work-dir", str(folder / "w2"), address),
    ):
        yield address, first


def driver(folder: Path, master: str) -> tuple[str, ...]:
    return sys.executable, "-c", DRIVER, master, str(folder)


def executors(worker: Path) -> list[Path]:
    """Return the folders of the executors that a worker has started, one per application."""
    return [folder for folder in worker.glob("app-*/*") if folder.is_dir()]


def test_a_killed_worker_loses_no_change(shop: Shop, tmp_path: Path):
    everything = shop.subscribe("all", "true")
    with cluster(tmp_path) as (master, first), started(tmp_path, "driver", *driver(tmp_path, master)):
        last = shop.write(("first", {"n": 0}))
        assert shop.receiver.wait_for(partial(complete, shop, last), 240)
        assert shop.receiver.wait_for(lambda: bool(executors(tmp_path / "w1")), 240)
        for number in range(20):
            last = shop.write(*((f"k{number}.{n}", {"n": n}) for n in range(20)))
            assert shop.receiver.wait_for(
                partial(has_received, shop, 20 * number), 120
            )  # at most one append ahead
            if number == 5:
                kill_group(first, signal.SIGKILL)
        assert shop.receiver.wait_for(partial(complete, shop, last), 240)
    unique = shop.receiver.unique
    assert len(unique) == 401
    assert all(change.enter == [everything] for change in unique.values())


def has_received(shop: Shop, count: int) -> bool:
    return len(shop.receiver.unique) >= count


@pytest.mark.soak
def test_a_killed_worker_and_a_killed_driver_lose_no_change(shop: Shop, tmp_path: Path):
    everything = shop.subscribe("all", "true")
    with cluster(tmp_path) as (master, first):
        with started(tmp_path, "driver", *driver(tmp_path, master)) as running:
            last = shop.write(("first", {"n": 0}))
            assert shop.receiver.wait_for(partial(complete, shop, last), 240)
            kill_group(first, signal.SIGKILL)
            last = shop.write(*((f"a{n}", {"n": n}) for n in range(200)))
            assert shop.receiver.wait_for(partial(complete, shop, last), 240)
            last = shop.write(*((f"b{n}", {"n": n}) for n in range(200)))
            Flag().wait(0.05)
            kill_group(running, signal.SIGKILL)
        with started(tmp_path, "again", *driver(tmp_path, master)):
            last = shop.write(*((f"c{n}", {"n": n}) for n in range(200)))
            assert shop.receiver.wait_for(partial(complete, shop, last), 240)
    unique = shop.receiver.unique
    assert len(unique) == 601
    assert all(everything in change.enter for change in unique.values())
