"""Embedders return unit vectors, equal for equal texts; the default one puts similar words close together."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from vedette.errors import IngestError
from vedette.search.embedding import LOCAL_EMBEDDERS, create_embedder


@pytest.mark.parametrize("name", list(LOCAL_EMBEDDERS))
def test_embedder_contract(name: str) -> None:
    embedder = create_embedder(name)
    texts = ["a folder of files", "", "\0\ud7ff", "a folder of files", "x" * 50_000]
    vectors = embedder.embed(texts)
    assert vectors.shape == (5, embedder.dimensions)
    assert vectors.dtype == np.float32
    assert np.isfinite(vectors).all()
    lengths = np.linalg.norm(vectors, axis=1)
    assert np.all((np.abs(lengths - 1) < 1e-5) | (lengths == 0))
    alone = np.vstack([embedder.embed([text]) for text in texts])
    assert np.allclose(vectors, alone, atol=1e-5), "an answer does not depend on its batch"
    assert embedder.embed([]).shape == (0, embedder.dimensions)
    assert str(embedder.dimensions) in embedder.name


def test_default_embedder_puts_similar_words_close_together() -> None:
    embedder = create_embedder("wordllama")
    question, near, far = embedder.embed(
        [
            "how do I install the program",
            "setup: put the software on your machine",
            "the cat sleeps in the sun",
        ]
    )
    assert question @ near > question @ far


def test_hashing_vectors_are_the_same_in_every_process() -> None:
    code = "from vedette.search.embedding import HashingEmbedder as H; print(H(16).embed(['a b c']).tolist())"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


def test_unknown_embedder_is_rejected() -> None:
    with pytest.raises(IngestError, match="the embedders are wordllama, hashing"):
        create_embedder("gpt")
