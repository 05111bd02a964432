"""Embedders, which map texts to vectors: the interface, and two that need no network.

`wordllama` is the default; its wheel contains the weights. `hashing` counts words and is for tests; its vectors are the
same on every machine. `remote_embedding` has the other embedders. All vectors have length 1, except the vector of a
text without words, which is zero.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from vedette.errors import IngestError
from vedette.extras import install_command, require_packages

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vectors = NDArray[np.float32]

__all__ = [
    "LOCAL_EMBEDDERS",
    "Embedder",
    "HashingEmbedder",
    "WordLlamaEmbedder",
    "create_embedder",
    "normalize_rows",
]


class Embedder(Protocol):
    """Turns texts into vectors. Equal texts must have equal vectors.

    The usual mistake of an implementation: the vector of a text depends on the other texts of its batch.
    """

    name: str
    """Stored with every vector. A search compares only vectors of the same embedder."""
    dimensions: int

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return one row per text. Raises E4522 if the embedder fails."""
        ...


BATCH_TEXTS = 256
"""Texts that are tokenized together."""


class WordLlamaEmbedder:
    """The vector of a text is the mean of its word vectors."""

    def __init__(self) -> None:
        require_packages(["numpy", "wordllama"], extra="files", feature="the embedder wordllama")
        try:
            import wordllama  # type: ignore[import-untyped]

            folder = Path(wordllama.__file__).parent
            model = wordllama.WordLlama.load(cache_dir=folder, disable_download=True)
        except Exception as error:
            raise IngestError(
                "E4522",
                f"the embedder wordllama cannot be loaded ({error}): reinstall it with {install_command('files')}",
                fields={"embedder": "wordllama"},
            ) from error
        # `WordLlama.embed` pads every text of a batch to the longest one, which doubles the time.
        self._tokenizer: Any = model.tokenizer
        self._tokenizer.no_padding()
        self._table: Vectors = model.embedding
        self.dimensions = int(self._table.shape[1])
        self.name = f"wordllama-{self.dimensions}"

    def embed(self, texts: Sequence[str]) -> Vectors:
        vectors = _zeros(len(texts), self.dimensions)
        for start in range(0, len(texts), BATCH_TEXTS):
            batch = list(texts[start : start + BATCH_TEXTS])
            for row, encoded in enumerate(
                self._tokenizer.encode_batch_fast(batch, add_special_tokens=False), start
            ):
                if encoded.ids:
                    vectors[row] = self._table.take(encoded.ids, axis=0, mode="clip").mean(axis=0)
        return normalize_rows(vectors)


_WORD = re.compile(r"\w+")


class HashingEmbedder:
    """Counts words and pairs of adjacent words in a fixed number of buckets."""

    def __init__(self, dimensions: int = 256) -> None:
        self.dimensions = dimensions
        self.name = f"hashing-{dimensions}"

    def embed(self, texts: Sequence[str]) -> Vectors:
        vectors = _zeros(len(texts), self.dimensions)
        for row, text in enumerate(texts):
            words = _WORD.findall(text.lower())
            for feature in [*words, *(f"{one} {two}" for one, two in pairwise(words))]:
                code = zlib.crc32(feature.encode())  # not hash(), which differs between processes
                vectors[row, code % self.dimensions] += 1.0 if code >> 31 else -1.0
        return normalize_rows(vectors)


LOCAL_EMBEDDERS: Mapping[str, Callable[[], Embedder]] = {
    "wordllama": WordLlamaEmbedder,
    "hashing": HashingEmbedder,
}


def create_embedder(name: str) -> Embedder:
    """Create the embedder that the setting `embedder` names. Raises E4522 if it is unknown or cannot be loaded."""
    from vedette.search.remote_embedding import HttpEmbedder, SentenceTransformersEmbedder

    require_packages(["numpy"], extra="files", feature=f"the embedder {name}")
    kind, colon, rest = name.partition(":")
    if colon and kind in ("http", "https"):
        return HttpEmbedder(name)
    if colon and kind == "sentence-transformers":
        return SentenceTransformersEmbedder(rest)
    if name not in LOCAL_EMBEDDERS:
        known = ", ".join([*LOCAL_EMBEDDERS, "sentence-transformers:MODEL", "http://…#MODEL"])
        raise IngestError(
            "E4522", f"unknown embedder '{name}'; the embedders are {known}", fields={"embedder": name}
        )
    return LOCAL_EMBEDDERS[name]()


def _zeros(rows: int, columns: int) -> Vectors:
    import numpy as np

    return np.zeros((rows, columns), dtype=np.float32)


def normalize_rows(vectors: Any) -> Vectors:
    """Scale each row to length 1. A zero row stays zero, and NaN values become zero."""
    import numpy as np

    rows: Vectors = np.nan_to_num(np.asarray(vectors, dtype=np.float32))
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: Vectors = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
    return unit
