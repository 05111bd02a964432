"""Benchmarks of folders and search, compared with raw `watchfiles`, `cocoindex` and `llama-index-core`."""

__all__: list[str] = []
