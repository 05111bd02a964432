"""prepare_spark.py: make what Spark's Java loads faster (src/vedette/pipeline/java_classes.py), once.

First the class is compiled, by the compiler inside Spark. Then a small stream runs with it, and when its Java ends it
writes down the classes that it had loaded.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import zipfile
from functools import partial
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

from vedette.pipeline.java_classes import CHECKPOINT_CLASS, JavaClasses, source_text
from vedette.pipeline.queries.changes import drain_and_stop, start_changes_query
from vedette.pipeline.session import JAVA_OPTIONS, end_session, open_session
from vedette.pipeline.task import PipelineConfig
from vedette.sources.images import encode_image
from vedette.sources.journal.seam import open_journal
from vedette.sources.records import Source, SourceEvent
from vedette.subscriptions.index.versions import Compactor
from vedette.subscriptions.registry.registry import SubscriptionRegistry, SubscriptionRequest
from vedette.subscriptions.spec import SubscriptionSpec
from vedette.testing.receiver import IngestReceiver

BATCHES = 8
WAIT_SECONDS = 120


def main() -> None:
    classes = JavaClasses.of_this_environment()
    classes.folder.mkdir(exist_ok=True)
    for old in classes.folder.iterdir():
        old.unlink()
    compile_class(classes.jar)
    with tempfile.TemporaryDirectory() as folder:
        archive_classes(Path(folder), classes.archive)


def compile_class(jar: Path) -> None:
    session = open_session()
    java = session._jvm
    assert java is not None
    compiler = java.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(java.Thread.currentThread().getContextClassLoader())
    compiler.cook(source_text())
    found: bytes = compiler.getBytecodes()[CHECKPOINT_CLASS]
    end_session(session)
    draft = jar.with_suffix(".draft")
    with zipfile.ZipFile(draft, "w") as file:
        file.writestr(CHECKPOINT_CLASS.replace(".", "/") + ".class", found)
    draft.rename(jar)


def archive_classes(home: Path, archive: Path) -> None:
    """Java writes the archive as it ends, so it appears whole under another name first."""
    draft = archive.with_suffix(".draft")
    options = f"{JAVA_OPTIONS} -XX:ArchiveClassesAtExit={draft} -Xlog:disable -Xlog:all=error:stderr"
    session = open_session(work=home / "spark", spark__driver__extraJavaOptions=options)
    tell_some(session, home)
    process = SparkContext._gateway.proc  # type: ignore[union-attr]
    session.stop()
    process.stdin.close()
    process.wait(WAIT_SECONDS)
    end_session(session)
    # Java falls over one that was cut off: a disk may have been full.
    java = Path(os.environ["JAVA_HOME"], "bin", "java") if "JAVA_HOME" in os.environ else "java"
    subprocess.run(  # noqa: S603
        [java, f"-XX:SharedArchiveFile={draft}", "-Xshare:auto", "-XX:ErrorFile=/dev/null", "-version"],
        check=True,
    )
    draft.rename(archive)


def tell_some(session: SparkSession, home: Path) -> None:
    """A stream of a few batches: what it needs is what every stream needs."""
    receiver = IngestReceiver(home / "in")
    journal, registry = open_journal(home), SubscriptionRegistry(home)
    journal.add_source(Source(name="shop", kind="mongodb", address=""))
    registry.acquire_lease("g", receiver.address, 3600)
    all_of_it = SubscriptionRequest(
        id="all",
        tenant="default",
        collection="orders",
        boundary=0,
        form=SubscriptionSpec(kind="cel", source="true"),
    )
    registry.register("g", [all_of_it], 3600)
    Compactor(registry, home / "index").publish()
    context = PipelineConfig(
        journal_url=journal.address, registry_url=registry.address, index_folder=home / "index"
    )
    query = start_changes_query(session, context, home / "checkpoint", start=0)
    for number in range(1, BATCHES + 1):
        event = SourceEvent(
            event_id=str(number), collection="orders", key="k", after=encode_image({"n": number}), time_ms=0
        )
        journal.append("shop", [event], None)
        if not receiver.wait_for(partial(has_heard, receiver, number), WAIT_SECONDS):
            raise SystemExit("a stream of its own did not run")
    drain_and_stop(query)
    receiver.close()
    registry.close()
    journal.close()


def has_heard(receiver: IngestReceiver, count: int) -> bool:
    return len(receiver.unique) >= count


if __name__ == "__main__":
    main()
