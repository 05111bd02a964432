"""Embedders that need more than Vedette installs: an HTTP endpoint, or a model of sentence-transformers.

    sentence-transformers:all-MiniLM-L6-v2        a model on this machine; the package is not a dependency of Vedette
    http://localhost:11434/v1/embeddings#model    a server that answers {"model", "input": [texts]} with
                                                  {"data": [{"embedding": [numbers], "index": n}]}

Most embedding servers understand this HTTP format. An API key is read from the environment variable
`VEDETTE_EMBEDDER_KEY` and never from a file.
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
from vedette.search.embedding import normalize_rows

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["HttpEmbedder", "SentenceTransformersEmbedder"]

KEY_VARIABLE = "VEDETTE_EMBEDDER_KEY"
BATCH_TEXTS = 128
"""Texts in one request."""
TIMEOUT_SECONDS = 60.0


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
            for start in range(0, len(texts), BATCH_TEXTS)
            for row in self._request_embeddings([text or " " for text in texts[start : start + BATCH_TEXTS]])
        ]
        if any(len(row) != self.dimensions for row in rows):
            raise self._unavailable_error(f"its vectors no longer have {self.dimensions} dimensions")
        return normalize_rows(np.asarray(rows, dtype=np.float32).reshape(len(texts), self.dimensions))

    def _request_embeddings(self, texts: list[str]) -> list[list[float]]:
        body = json.dumps({"model": self._model, "input": texts}).encode()
        headers = {"Content-Type": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        try:
            request = Request(self._url, body, headers)  # noqa: S310 - `create_embedder` has checked the scheme
            with urlopen(request, timeout=TIMEOUT_SECONDS) as response:  # noqa: S310
                data = json.load(response)["data"]
            rows = [item["embedding"] for item in sorted(data, key=lambda item: item.get("index", 0))]
        except HTTPError as error:
            raise self._unavailable_error(f"it answered {error.code} {error.reason}") from error
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._unavailable_error(f"{type(error).__name__}: {error}") from error
        if len(rows) != len(texts):
            raise self._unavailable_error(f"it returned {len(rows)} vectors for {len(texts)} texts")
        return rows

    def _unavailable_error(self, reason: str) -> IngestError:
        return IngestError(
            "E4522",
            f"the embedder at {self._url} cannot be used ({reason}): check that the server runs and that the address "
            "is right",
            fields={"embedder": self._url},
        )


class SentenceTransformersEmbedder:
    def __init__(self, model: str) -> None:
        try:
            package = importlib.import_module("sentence_transformers")
            self._model: Any = package.SentenceTransformer(model)
        except Exception as error:  # not installed, an unknown model, or no network
            raise IngestError(
                "E4522",
                f"the model {model} of sentence-transformers cannot be loaded ({error}): "
                "install the package sentence-transformers, and download the model to this machine",
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
