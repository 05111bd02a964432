"""Files to searchable vectors, without Spark. The Spark ingestion query runs the same code on executors.

    read ▸ detect ▸ extract ▸ chunk ▸ embed ▸ upsert, old chunks removed in the same step

Each step is a module. `ingestion` combines them and returns one outcome per file. A file that fails never fails the
others of its batch. The order that makes ingestion durable: announce the change, put the task, store the chunks,
flush the store, acknowledge the task.
"""

__all__: list[str] = []
