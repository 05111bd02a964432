"""A MongoDB for the tests: the server at VEDETTE_TEST_MONGODB_URI, or a Java server with the same protocol.

The Java server is `de.bwaldvogel:mongo-java-server` with its oplog, in a JVM controlled through py4j. It has change
streams, but neither pre-images nor postBatchResumeToken; features that need those are tested with recorded replies.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

__all__ = ["mongodb_uri"]

JARS = Path(__file__).parents[2] / "build" / "mongodb"


@pytest.fixture(scope="session")
def mongodb_uri() -> Iterator[str]:
    """Return the address of an empty server for this test session.

    Without a server the test is skipped; CI fails on that skip.
    """
    given = os.environ.get("VEDETTE_TEST_MONGODB_URI")
    if given:
        yield given
        return
    if not list(JARS.glob("mongo-java-server-*.jar")) or shutil.which("java") is None:
        pytest.skip("no MongoDB server: scripts/ensure-test-services downloads one, which needs Java")
    _accept_an_older_protocol()
    import pyspark
    from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

    py4j_jar = next((Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar"))
    port, process = launch_gateway(
        jarpath=str(py4j_jar),
        classpath=f"{JARS}/*",
        javaopts=["-Xmx256m"],
        redirect_stdout=subprocess.DEVNULL,
        redirect_stderr=subprocess.DEVNULL,
        die_on_exit=True,
        return_proc=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
    mongo = gateway.jvm.de.bwaldvogel.mongo
    server = mongo.MongoServer(mongo.backend.memory.MemoryBackend().version(mongo.ServerVersion.MONGO_5_0))
    server.enableOplog()
    address = server.bind()
    yield f"mongodb://127.0.0.1:{address.getPort()}/?directConnection=true"
    server.shutdownNow()
    gateway.shutdown()
    if process.stdin is not None:
        process.stdin.close()
    process.kill()
    process.wait()


def _accept_an_older_protocol() -> None:
    """The Java server reports version 4.2, and this pymongo needs 4.4. The commands used here are the same in both."""
    from pymongo import common

    common.MIN_SUPPORTED_WIRE_VERSION = 8
