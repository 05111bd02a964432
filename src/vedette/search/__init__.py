"""Search over files: from a changed file to searchable vectors.

    file_reader ▸ content_type ▸ extraction ▸ chunking ▸ embedding ▸ vectors
    └────────────────────── preparation ───────────────────────┘
    └──────────────────────────────── ingestion ──────────────────────────┘

Theory of operation. `preparation` turns a batch of files into chunks with vectors; it needs no store, so it also runs
on Spark executors. `ingestion` replaces the chunks of each file in the vector store and returns one outcome per file. A
file that fails never affects the other files of its batch. `folders` has the daemon that follows watched folders, and
`file_queue` has the durable queue between its watchers and its worker.

Each step is durable before the next one begins: the watcher announces a new file in `folders.db`, the intake puts a
task, the worker stores the chunks, flushes the store, and only then acknowledges the task. After a crash between two
steps the earlier step is repeated, and every step is idempotent.
"""

__all__: list[str] = []
