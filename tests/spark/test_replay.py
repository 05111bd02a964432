"""Captures, replays and comparisons of two replays."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import vedette
from tests.spark.conftest import Shop
from vedette.errors import PipelineError
from vedette.pipeline.queries.capture import capture, is_sampled, mask_image
from vedette.pipeline.queries.replay import replay
from vedette.pipeline.queries.shadow import compare, shadow
from vedette.sources.images import decode_image, encode_image


def filled(shop: Shop) -> int:
    number = shop.subscribe("paid", "doc.status == 'paid'")
    for n in range(40):
        status = "paid" if n % 4 == 0 else "open"
        shop.write((f"k{n % 10}", {"status": status, "n": n, "owner": {"name": f"person {n % 3}"}}))
    return number


def test_replaying_a_capture_twice_gives_the_same_matches(spark: Any, shop: Shop, tmp_path: Path):
    number = filled(shop)
    out = f"file://{tmp_path}/capture"  # any Hadoop path works
    taken = capture(
        spark, shop.journal.address, tmp_path / "index", out, sample_rate=0.7, mask=["owner.name"], salt="s"
    )
    rows = pq.read_table(f"{out}/changes").to_pylist()
    keys = {f"k{n}" for n in range(10) if is_sampled("default", "shop::orders", f"k{n}", 0.7)}
    assert {row["key"] for row in rows} == keys
    assert taken == len(rows) == 4 * len(keys), "the history of a sampled document is complete"
    assert not any(b"person" in row["after"] for row in rows)
    replay(spark, out, str(tmp_path / "one"))
    replay(spark, out, str(tmp_path / "two"))
    same = compare(spark, str(tmp_path / "one"), str(tmp_path / "two"))
    assert (same.divergence, same.only_current, same.only_candidate) == (0, 0, 0)
    found = pq.read_table(tmp_path / "one")
    assert same.matched_by_both == found.num_rows > 0
    assert set(found["subscription"].to_pylist()) == {number}
    # A matcher that misses one match and routes another one differently.
    other = found.slice(1).to_pylist()
    other[0]["gateway"] += 1
    (tmp_path / "three").mkdir()
    pq.write_table(pa.Table.from_pylist(other, schema=found.schema), tmp_path / "three" / "part.parquet")
    worse = compare(spark, str(tmp_path / "one"), str(tmp_path / "three"))
    assert (worse.only_current, worse.only_candidate, worse.routed_differently) == (1, 0, 1)
    assert worse.divergence == pytest.approx(2 / found.num_rows)


@pytest.mark.soak
@pytest.mark.parametrize(
    "candidate", [Path(sys.prefix), Path(vedette.__file__).parents[1]], ids=["installed", "folder"]
)
def test_shadow_runs_another_version(spark: Any, shop: Shop, tmp_path: Path, candidate: Path):
    filled(shop)
    out = str(tmp_path / "capture")
    capture(spark, shop.journal.address, tmp_path / "index", out)
    found = shadow(spark, out, candidate, tmp_path)
    assert found.divergence == 0
    assert found.matched_by_both > 0


def test_a_folder_that_is_not_a_capture_is_refused(spark: Any, tmp_path: Path):
    with pytest.raises(PipelineError, match="is not a capture") as caught:
        replay(spark, str(tmp_path / "nothing"), str(tmp_path / "out"))
    assert caught.value.code == "E6303"


def test_equal_values_have_equal_pseudonyms():
    one, two = (encode_image({"a": {"b": value}, "c": 1}) for value in ("x", "y"))
    codes = [
        decode_image(mask_image(image, ["a.b", "nothing.there"], "s") or b"") for image in (one, two, one)
    ]
    assert codes[0] == codes[2] != codes[1]
    assert codes[0]["c"] == 1
    assert mask_image(None, ["a"], "s") is None
    assert mask_image(one, ["a.b"], "other salt") != mask_image(one, ["a.b"], "s")
