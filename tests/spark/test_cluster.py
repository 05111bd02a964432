"""A standalone cluster on loopback, one master and two workers: a worker that is killed costs nothing but time."""

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
from tests.spark.test_stream import complete
from vedette.pipeline.session import DRIVER_JAVA_OPTIONS

DRIVER = """
import sys
from pathlib import Path
from vedette.pipeline.task import PipelineConfig
from vedette.pipeline.session import DRIVER_JAVA_OPTIONS, open_session
from vedette.pipeline.queries.changes import start_changes_query

master, home = sys.argv[1], Path(sys.argv[2])
context = PipelineConfig(
    journal_url=str(home / "collections.db"),
    registry_url=str(home / "subscriptions.db"),
    index_folder=home / "index",
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
query = start_changes_query(session, context, home / "checkpoint", start=0)
query.awaitTermination()
"""


def spark_class() -> Path:
    import pyspark

    return Path(pyspark.__file__).parent / "bin" / "spark-class"


@contextmanager
def started(home: Path, name: str, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    environment = {
        **os.environ,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_DAEMON_JAVA_OPTS": DRIVER_JAVA_OPTIONS,
    }
    with (home / f"{name}.log").open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )
    try:
        yield process
    finally:
        with_group(process, signal.SIGKILL)


def with_group(process: subprocess.Popen[bytes], number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
    process.wait()


@contextmanager
def cluster(home: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """One master and two workers of one core each: the address of the master, and one of the workers."""
    if shutil.which("java") is None:
        pytest.skip("no Java")
    port, program = free_port(), str(spark_class())
    address, deploy = f"spark://127.0.0.1:{port}", "org.apache.spark.deploy"
    master = (program, f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port))
    worker = (program, f"{deploy}.worker.Worker", "--host", "127.0.0.1", "--cores", "1", "--memory", "1g")
    with (
        started(home, "master", *master, "--webui-port", "0"),
        started(home, "one", *worker, "--webui-port", "0", "--work-dir", str(home / "w1"), address) as first,
        started(home, "two", *worker, "--webui-port", "0", "--work-dir", str(home / "w2"), address),
    ):
        yield address, first


def driver(home: Path, master: str) -> tuple[str, ...]:
    return sys.executable, "-c", DRIVER, master, str(home)


def executors(worker: Path) -> list[Path]:
    """Folders of the executors that a worker has started: one of each application."""
    return [folder for folder in worker.glob("app-*/*") if folder.is_dir()]


def test_a_worker_dies_in_mid_stream(shop: Shop, tmp_path: Path):
    everything = shop.subscribe("all", "true")
    with cluster(tmp_path) as (master, first), started(tmp_path, "driver", *driver(tmp_path, master)):
        last = shop.write(("first", {"n": 0}))
        assert shop.receiver.wait_for(partial(complete, shop, last), 240)
        assert shop.receiver.wait_for(lambda: bool(executors(tmp_path / "w1")), 240)
        for turn in range(20):
            last = shop.write(*((f"k{turn}.{n}", {"n": n}) for n in range(20)))
            assert shop.receiver.wait_for(partial(told, shop, 20 * turn), 120)  # one append ahead of it
            if turn == 5:
                with_group(first, signal.SIGKILL)
        assert shop.receiver.wait_for(partial(complete, shop, last), 240)
    unique = shop.receiver.unique
    assert len(unique) == 401
    assert all(change.enter == [everything] for change in unique.values())


def told(shop: Shop, count: int) -> bool:
    return len(shop.receiver.unique) >= count


@pytest.mark.soak
def test_a_worker_and_the_driver_die(shop: Shop, tmp_path: Path):
    everything = shop.subscribe("all", "true")
    with cluster(tmp_path) as (master, first):
        with started(tmp_path, "driver", *driver(tmp_path, master)) as running:
            last = shop.write(("first", {"n": 0}))
            assert shop.receiver.wait_for(partial(complete, shop, last), 240)
            with_group(first, signal.SIGKILL)
            last = shop.write(*((f"a{n}", {"n": n}) for n in range(200)))
            assert shop.receiver.wait_for(partial(complete, shop, last), 240)
            last = shop.write(*((f"b{n}", {"n": n}) for n in range(200)))
            Flag().wait(0.05)
            with_group(running, signal.SIGKILL)
        with started(tmp_path, "again", *driver(tmp_path, master)):
            last = shop.write(*((f"c{n}", {"n": n}) for n in range(200)))
            assert shop.receiver.wait_for(partial(complete, shop, last), 240)
    unique = shop.receiver.unique
    assert len(unique) == 601
    assert all(everything in change.enter for change in unique.values())
