"""A standalone cluster on loopback, one master and two workers: a worker that is killed costs nothing but time."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Event as Flag

import pytest

from tests.spark.conftest import Shop
from tests.spark.test_stream import complete

DRIVER = """
import sys
from pathlib import Path
from vedette.pipeline.context import PipelineContext
from vedette.pipeline.session import open_session
from vedette.pipeline.stream import start_stream

master, home = sys.argv[1], Path(sys.argv[2])
context = PipelineContext(
    journal=str(home / "collections.db"), registry=str(home / "subscriptions.db"), index=home / "index", secret="s"
)
session = open_session(master, spark__executor__memory="512m", spark__cores__max="2", spark__task__maxFailures="8")
query = start_stream(session, context, home / "checkpoint", start=0)
query.awaitTermination()
"""


def spark_class() -> Path:
    import pyspark

    return Path(pyspark.__file__).parent / "bin" / "spark-class"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def started(home: Path, name: str, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
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


@pytest.mark.soak
def test_a_worker_and_the_driver_die(shop: Shop, tmp_path: Path):
    if shutil.which("java") is None:
        pytest.skip("no Java")
    port, program = free_port(), str(spark_class())
    master = f"spark://127.0.0.1:{port}"
    deploy = "org.apache.spark.deploy"
    worker = (program, f"{deploy}.worker.Worker", "--host", "127.0.0.1", "--cores", "1", "--memory", "1g")
    everything = shop.subscribe("all", "true")
    with (
        started(
            tmp_path, "master", program, f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port),
            "--webui-port", "0",
        ),
        started(tmp_path, "one", *worker, "--work-dir", str(tmp_path / "w1"), master) as first,
        started(tmp_path, "two", *worker, "--work-dir", str(tmp_path / "w2"), master),
    ):  # fmt: skip
        driver = (sys.executable, "-c", DRIVER, master, str(tmp_path))
        with started(tmp_path, "driver", *driver) as running:
            last = shop.write(("first", {"n": 0}))
            assert shop.receiver.wait_for(partial(complete, shop, last), 120)
            with_group(first, signal.SIGKILL)
            last = shop.write(*((f"a{n}", {"n": n}) for n in range(200)))
            assert shop.receiver.wait_for(partial(complete, shop, last), 120)
            last = shop.write(*((f"b{n}", {"n": n}) for n in range(200)))
            Flag().wait(0.05)
            with_group(running, signal.SIGKILL)
        with started(tmp_path, "again", *driver):
            last = shop.write(*((f"c{n}", {"n": n}) for n in range(200)))
            assert shop.receiver.wait_for(partial(complete, shop, last), 120)
    unique = shop.receiver.unique
    assert len(unique) == 601
    assert all(everything in change.enter for change in unique.values())
