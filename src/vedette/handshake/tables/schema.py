"""The format of `handshake.db`, by version.

    watch_folders         one row per folder watch or source: configuration and health
    watch_error_patterns  properties that several failures share
    watch_exclusions      paths that are not processed
    system_state          named JSON values of the whole daemon:
                          graceful_degradation_state   level, entered_at, last_check_at, queue_depth, throughput,
                                                       memory_usage, paused_watch_ids, polling_interval_multiplier,
                                                       recovery_step
                          sink_circuit                 the circuit breaker of the sink
                          queue_capacity               queued tasks by watch, and whether throttling is on
    file_tasks            the file queue as its owner last wrote it; the tasks are nodes of a graph
    ingestion_queue       the same as a view, with the current status and age

Timestamps are UTC text with milliseconds and `Z`, so they sort by time. JSON values are text too
(docs/design/decisions/0057-handshake-tables.md).
"""

from __future__ import annotations

from vedette.storage.sqlite.migrations import Migration

__all__ = ["APPLICATION_ID", "MIGRATIONS", "TASK_ORDER", "task_status"]

APPLICATION_ID = 0x56444853
"""`VDHS` in ASCII; identifies the file."""

TASK_ORDER = "dead_at IS NOT NULL, operation != 'delete', priority DESC, queued_at, number"
"""The order of high-first claims; dead letters are last."""


def task_status(now: str) -> str:
    """Return SQL for the status of a row of `file_tasks` at the time `now`, an SQL expression."""
    return f"""CASE WHEN dead_at IS NOT NULL THEN 'dead'
                WHEN lease_until > {now} THEN 'in_progress'
                WHEN due_at > {now} THEN 'delayed' ELSE 'pending' END"""


MIGRATIONS: tuple[Migration, ...] = (
    Migration(
        version=1,
        summary="watch_folders, watch_error_patterns, watch_exclusions, system_state",
        statements=(
            """CREATE TABLE watch_folders (
                watch_id TEXT PRIMARY KEY,
                path TEXT NOT NULL,
                collection TEXT NOT NULL,
                patterns TEXT NOT NULL DEFAULT '[]',
                ignore_patterns TEXT NOT NULL DEFAULT '[]',
                auto_ingest INTEGER NOT NULL DEFAULT 1 CHECK (auto_ingest IN (0, 1)),
                recursive INTEGER NOT NULL DEFAULT 1 CHECK (recursive IN (0, 1)),
                recursive_depth INTEGER NOT NULL DEFAULT 10 CHECK (recursive_depth >= -1),
                debounce_seconds REAL NOT NULL DEFAULT 2.0 CHECK (debounce_seconds >= 0),
                enabled INTEGER NOT NULL DEFAULT 1 CHECK (enabled IN (0, 1)),
                watch_type TEXT NOT NULL DEFAULT 'project' CHECK (watch_type IN ('project', 'library', 'source')),
                library_name TEXT,
                watch_priority INTEGER NOT NULL DEFAULT 5 CHECK (watch_priority BETWEEN 0 AND 10),
                created_at TEXT NOT NULL,
                updated_at TEXT NOT NULL,
                last_scan TEXT,
                metadata TEXT NOT NULL DEFAULT '{}',
                consecutive_errors INTEGER NOT NULL DEFAULT 0,
                total_errors INTEGER NOT NULL DEFAULT 0,
                last_error_at TEXT,
                last_error_message TEXT,
                backoff_until TEXT,
                last_success_at TEXT,
                health_status TEXT NOT NULL DEFAULT 'healthy'
                    CHECK (health_status IN ('healthy', 'degraded', 'backoff', 'disabled')),
                consecutive_successes INTEGER NOT NULL DEFAULT 0,
                circuit_state TEXT NOT NULL DEFAULT 'closed' CHECK (circuit_state IN ('closed', 'open', 'half_open')),
                circuit_opened_at TEXT,
                circuit_trials INTEGER NOT NULL DEFAULT 0,
                recent_errors TEXT NOT NULL DEFAULT '[]',
                disabled_by TEXT CHECK (disabled_by IN ('circuit', 'user')),
                paused_at TEXT,
                rescan_requested_at TEXT,
                watch_mode TEXT CHECK (watch_mode IN ('native', 'polling')),
                unavailable_since TEXT,
                unavailable_reason TEXT)""",
            "CREATE INDEX watch_folders_path ON watch_folders (path)",
            "CREATE INDEX watch_folders_collection ON watch_folders (collection)",
            "CREATE INDEX watch_folders_health ON watch_folders (health_status)",
            "CREATE INDEX watch_folders_priority ON watch_folders (watch_priority DESC)",
            """CREATE TABLE watch_error_patterns (
                id INTEGER PRIMARY KEY,
                watch_id TEXT NOT NULL REFERENCES watch_folders (watch_id) ON DELETE CASCADE,
                pattern_type TEXT NOT NULL
                    CHECK (pattern_type IN ('file_repeated', 'file_type', 'time_based', 'network', 'permission')),
                pattern_key TEXT NOT NULL,
                occurrence_count INTEGER NOT NULL DEFAULT 1,
                first_seen_at TEXT NOT NULL,
                last_seen_at TEXT NOT NULL,
                is_systematic INTEGER NOT NULL DEFAULT 0 CHECK (is_systematic IN (0, 1)),
                confidence_score REAL NOT NULL DEFAULT 0.0 CHECK (confidence_score BETWEEN 0 AND 1),
                last_message TEXT,
                UNIQUE (watch_id, pattern_type, pattern_key))""",
            """CREATE TABLE watch_exclusions (
                id INTEGER PRIMARY KEY,
                watch_id TEXT NOT NULL REFERENCES watch_folders (watch_id) ON DELETE CASCADE,
                exclusion_type TEXT NOT NULL CHECK (exclusion_type IN ('file', 'pattern', 'directory')),
                exclusion_value TEXT NOT NULL,
                reason TEXT NOT NULL,
                error_count INTEGER NOT NULL DEFAULT 0,
                created_at TEXT NOT NULL,
                expires_at TEXT,
                is_permanent INTEGER NOT NULL DEFAULT 0 CHECK (is_permanent IN (0, 1)),
                CHECK ((expires_at IS NULL) = is_permanent),
                UNIQUE (watch_id, exclusion_type, exclusion_value))""",
            """CREATE TABLE system_state (
                key TEXT PRIMARY KEY, value TEXT NOT NULL, updated_at TEXT NOT NULL) WITHOUT ROWID""",
        ),
    ),
    Migration(
        version=2,
        summary="file_tasks, ingestion_queue, queue_requests",
        statements=(
            """CREATE TABLE file_tasks (
                number INTEGER PRIMARY KEY,
                element TEXT NOT NULL,
                key TEXT NOT NULL UNIQUE,
                path TEXT NOT NULL,
                watch_id TEXT NOT NULL,
                collection TEXT NOT NULL,
                operation TEXT NOT NULL CHECK (operation IN ('ingest', 'update', 'delete')),
                priority INTEGER NOT NULL CHECK (priority BETWEEN 0 AND 10),
                queued_at TEXT NOT NULL,
                attempts INTEGER NOT NULL DEFAULT 0,
                due_at TEXT,
                lease_until TEXT,
                worker_id TEXT,
                error TEXT,
                dead_at TEXT)""",
            "CREATE INDEX file_tasks_path ON file_tasks (path)",
            f"""CREATE VIEW ingestion_queue AS SELECT
                path, collection, watch_id, operation, priority,
                {task_status("strftime('%Y-%m-%dT%H:%M:%fZ', 'now')")} AS status,
                round((julianday('now') - julianday(queued_at)) * 86400, 3) AS age,
                lease_until, worker_id, attempts, queued_at, due_at, dead_at, error
                FROM file_tasks
                ORDER BY {TASK_ORDER}""",  # noqa: S608 - constants only
            """CREATE TABLE queue_requests (
                id INTEGER PRIMARY KEY AUTOINCREMENT,
                verb TEXT NOT NULL CHECK (verb IN ('retry', 'purge')),
                argument TEXT,
                requested_at TEXT NOT NULL,
                answer TEXT)""",
        ),
    ),
    Migration(
        version=3,
        summary="file_tasks.node_id instead of element; no queue_requests: `daemon.sock` has the requests",
        statements=(
            "ALTER TABLE file_tasks RENAME COLUMN element TO node_id",
            "DROP TABLE queue_requests",
        ),
    ),
)
