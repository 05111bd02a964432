"""What Spark's Java gets from us: a class of ours, and an archive of the classes that it loads.

`scripts/prepare_spark.py` makes both once, in the folder of the Python environment: the class is compiled by the
compiler that is part of Spark, so no JDK is needed. Both only save time. Where they are missing, or were made for a
different Spark, nothing is said and Spark does without; whether the archive fits its version and its jars Java finds
out by itself.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import distribution
from pathlib import Path

__all__ = ["CHECKPOINT_CLASS", "JavaClasses", "source_text"]

CHECKPOINT_CLASS = "vedette.LocalCheckpointFiles"
_SOURCE = Path(__file__).with_name("LocalCheckpointFiles.java")
_QUIET = "-Xshare:auto -Xlog:disable -Xlog:all=error:stderr"
"""An archive that does not fit is passed over without a word: Java would warn on the terminal, each time."""


def source_text() -> str:
    return _SOURCE.read_text()


@dataclass(frozen=True, slots=True)
class JavaClasses:
    """Where they are, whether they are made or not."""

    folder: Path

    @classmethod
    def of_this_environment(cls) -> JavaClasses:
        return cls(Path(sys.prefix) / "vedette-java")

    @property
    def jar(self) -> Path:
        """The compiled class. Named after what it was made of, as the archive: another Spark does not find it."""
        return self.folder / f"{_fingerprint()}.jar"

    @property
    def archive(self) -> Path:
        return self.folder / f"{_fingerprint()}.jsa"

    @property
    def are_made(self) -> bool:
        return self.jar.is_file() and self.archive.is_file()

    def settings(self, master: str, java_options: str) -> dict[str, str]:
        """Of a session. The class is for local masters alone: state stores need it where executors are."""
        if not self.jar.is_file():
            return {"spark.driver.extraJavaOptions": java_options}
        archive = f" -XX:SharedArchiveFile={self.archive} {_QUIET}" if self.archive.is_file() else ""
        found = {
            "spark.driver.extraClassPath": str(self.jar),
            "spark.driver.extraJavaOptions": java_options + archive,
        }
        if master.startswith("local"):
            found["spark.sql.streaming.checkpointFileManagerClass"] = CHECKPOINT_CLASS
        return found


def _fingerprint() -> str:
    spark = distribution("pyspark")
    made_of = f"{spark.version} {spark.locate_file('pyspark')} {source_text()}"
    return sha256(made_of.encode()).hexdigest()[:16]
