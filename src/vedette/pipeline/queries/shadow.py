"""Shadow: replay a capture with this version and with another installed version, and compare the matches.

    two outputs of replay ▸ full outer join on (offset, subscription, reason) ▸ one aggregate ▸ Comparison

The other version, the candidate, is a wheel, a virtual environment, or a folder that contains the package (for example
a checkout). Of a wheel or a folder only Vedette itself is used; its dependencies are those installed here.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from vedette.errors import PipelineError
from vedette.pipeline.queries.replay import replay

__all__ = ["Candidate", "Comparison", "compare", "find_candidate", "shadow"]

_MATCH_KEY = ("offset", "subscription", "reason")


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """How the matches of two versions differ for the same changes."""

    matched_by_both: int
    only_current: int
    only_candidate: int
    routed_differently: int
    """Matches of both versions that are delivered to different gateways."""
    current_ms: float
    candidate_ms: float
    """Median time to match an Arrow batch."""

    @property
    def divergence(self) -> float:
        """The share of matches that are not the same in both versions."""
        differing = self.only_current + self.only_candidate + self.routed_differently
        return differing / max(1, self.matched_by_both + self.only_current + self.only_candidate)


def shadow(spark: SparkSession, capture: str, candidate: Path, work: Path) -> Comparison:
    """Replay a capture here and with the candidate, and compare. Raise PipelineError E6303 if the candidate fails."""
    current_out, candidate_out = str(work / "present"), str(work / "candidate")
    found = find_candidate(candidate, work)  # fail before the work starts if there is none
    replay(spark, capture, current_out)
    done = subprocess.run(  # noqa: S603 - the program that the user named
        found.command("replay", capture, "--out", candidate_out),
        env=found.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise PipelineError("E6303", f"the candidate failed to replay the capture: {done.stderr[-500:]}")
    return compare(spark, current_out, candidate_out)


def compare(spark: SparkSession, current: str, candidate: str) -> Comparison:
    """Compare two outputs of `replay`."""
    ours, theirs = spark.read.parquet(current), spark.read.parquet(candidate)
    joined = _gateways(ours, "current").join(_gateways(theirs, "candidate"), list(_MATCH_KEY), "full_outer")
    in_current, in_candidate = F.col("current").isNotNull(), F.col("candidate").isNotNull()
    in_both = in_current & in_candidate
    (row,) = joined.agg(
        F.count_if(in_both).alias("both"),
        F.count_if(in_current & ~in_candidate).alias("only_current"),
        F.count_if(~in_current & in_candidate).alias("only_candidate"),
        F.count_if(in_both & (F.col("current") != F.col("candidate"))).alias("routed_differently"),
    ).collect()
    return Comparison(
        matched_by_both=row["both"],
        only_current=row["only_current"],
        only_candidate=row["only_candidate"],
        routed_differently=row["routed_differently"],
        current_ms=_median_batch_ms(ours),
        candidate_ms=_median_batch_ms(theirs),
    )


def _gateways(matches: DataFrame, name: str) -> DataFrame:
    return matches.select(*_MATCH_KEY, F.col("gateway").alias(name)).dropDuplicates(list(_MATCH_KEY))


def _median_batch_ms(matches: DataFrame) -> float:
    (row,) = matches.select("batch_ms").distinct().agg(F.median("batch_ms").alias("median")).collect()
    return float(row["median"] or 0.0)


class Candidate(NamedTuple):
    """How to run a program of the other version."""

    python: str
    path: Path | None
    """Folder that comes first on the module path; None for an environment that has Vedette installed."""

    def command(self, *words: str) -> Sequence[str]:
        return [self.python, "-m", "vedette", *words]

    def environment(self, base: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the environment variables of its process, which its workers inherit."""
        found = dict(os.environ if base is None else base)
        if self.path is not None:
            found["PYTHONPATH"] = os.pathsep.join(filter(None, (str(self.path), found.get("PYTHONPATH"))))
        return found


def find_candidate(given: Path, work: Path) -> Candidate:
    """Return the candidate at a path. A wheel is unpacked in `work`. Raise PipelineError E6303 if there is none."""
    if given.suffix == ".whl" and given.is_file():
        return Candidate(sys.executable, _unpack_wheel(given, work))
    if (given / "bin" / "python").exists():
        return Candidate(str(given / "bin" / "python"), None)
    for folder in (given, given / "src"):
        if (folder / "vedette" / "__init__.py").is_file():
            return Candidate(sys.executable, folder.absolute())
    text = (
        f"{given} is not a candidate. Give a wheel (.whl), a virtual environment (with bin/python), "
        "or a folder that contains the package vedette"
    )
    raise PipelineError("E6303", text, fields={"candidate": str(given)})


def _unpack_wheel(wheel: Path, work: Path) -> Path:
    folder = work / "wheel"
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = archive.namelist()
            if "vedette/__init__.py" not in names:
                raise PipelineError("E6303", f"{wheel} is not a wheel of Vedette: it has no package vedette")
            if any(Path(name).is_absolute() or ".." in Path(name).parts for name in names):
                raise PipelineError("E6303", f"{wheel} has files outside its folder and is not unpacked")
            archive.extractall(folder)
    except zipfile.BadZipFile as problem:
        raise PipelineError("E6303", f"{wheel} is not a wheel: {problem}") from problem
    return folder
