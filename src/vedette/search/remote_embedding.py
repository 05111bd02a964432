"""Embedders beyond those that come along: a model of sentence-transformers, or an HTTP endpoint.

    sentence-transformers:all-MiniLM-L6-v2        a model on this machine; its package is not among our dependencies
    http://localhost:11434/v1/embeddings#model    who answers {"model", "input": [texts]} with {"data": [{"embedding"}]}

That form of question and answer is what most servers of embeddings speak. A key goes into the environment, as
`VEDETTE_EMBEDDER_KEY`, never into a file.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.parse import urldefrag
from urllib.request import Request, urlopen

from vedette.errors import IngestError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["HttpEmbedder", "SentenceTransformersEmbedder"]

KEY_VARIABLE = "VEDETTE_EMBEDDER_KEY"
_AT_ONCE = 128
"""Texts of one request."""
_PATIENCE_SECONDS = 60.0


class HttpEmbedder:
    def __init__(self, address: str, environment: Mapping[str, str] = os.environ) -> None:
        self._url, self._model = urldefrag(address)
        self._key = environment.get(KEY_VARIABLE, "")
        self.dimensions = len(self._request_embeddings(["dimensions"])[0])
        self.name = f"{self._model or self._url}-{self.dimensions}"

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        import numpy as np

        rows = [
            row
            for start in range(0, len(texts), _AT_ONCE)
            for row in self._request_embeddings([text or " " for text in texts[start : start + _AT_ONCE]])
        ]
        if any(len(row) != self.dimensions for row in rows):
            raise self._unavailable_error(f"its vectors have no longer {self.dimensions} numbers each")
        vectors = np.asarray(rows, dtype=np.float32).reshape(len(texts), self.dimensions)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        unit: NDArray[np.float32] = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
        return unit

    def _request_embeddings(self, texts: list[str]) -> list[list[float]]:
        body = json.dumps({"model": self._model, "input": texts}).encode()
        headers = {"Content-Type": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        try:
            request = Request(self._url, body, headers)  # noqa: S310 - the setting says http or https
            with urlopen(request, timeout=_PATIENCE_SECONDS) as answer:  # noqa: S310
                data = json.load(answer)["data"]
            rows = [each["embedding"] for each in sorted(data, key=lambda each: each.get("index", 0))]
        except HTTPError as error:
            raise self._unavailable_error(f"it answers {error.code} {error.reason}") from error
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._unavailable_error(f"{type(error).__name__}: {error}") from error
        if len(rows) != len(texts):
            raise self._unavailable_error(f"{len(texts)} texts got {len(rows)} vectors")
        return rows

    def _unavailable_error(self, why: str) -> IngestError:
        return IngestError(
            "E4522",
            f"the embedder at {self._url} cannot be used ({why}): is it running, and is that its address?",
            fields={"embedder": self._url},
        )


class SentenceTransformersEmbedder:
    def __init__(self, model: str) -> None:
        try:
            package = importlib.import_module("sentence_transformers")
            self._model: Any = package.SentenceTransformer(model)
        except Exception as error:  # not installed, no such model, no network: whatever it raises
            raise IngestError(
                "E4522",
                f"the model {model} of sentence-transformers cannot be loaded ({error}): "
                "install sentence-transformers beside Vedette, and have the model on this machine",
                fields={"embedder": model},
            ) from error
        self.dimensions = int(self._model.get_sentence_embedding_dimension())
        self.name = f"{model}-{self.dimensions}"

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        import numpy as np

        if not texts:
            return np.zeros((0, self.dimensions), dtype=np.float32)
        vectors: NDArray[np.float32] = np.asarray(
            self._model.encode(list(texts), normalize_embeddings=True, show_progress_bar=False),
            dtype=np.float32,
        )
        return vectors
