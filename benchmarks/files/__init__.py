"""Folders to vectors: the five cases of step 6, beside raw `watchfiles`, `cocoindex` and `llama-index-core`."""

__all__: list[str] = []
