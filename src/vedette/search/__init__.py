"""A file to text to chunks to vectors, without Spark: what the pipeline's ingest job runs on every file.

    read ▸ detect ▸ extract ▸ chunk ▸ embed ▸ upsert, the old chunks removed in the same step

Each step is a module of its own; `ingestion` puts them together and answers for every file with an outcome. A file that
fails never fails the others of its batch.
"""

__all__: list[str] = []
