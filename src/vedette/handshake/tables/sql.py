"""SQL statements of `handshake.db`. Values are always parameters."""

from __future__ import annotations

from vedette.handshake.tables.rows import CONFIG_COLUMNS, HEALTH_COLUMNS

__all__ = [
    "ADD_PATTERN",
    "ADD_WATCH",
    "BY_PATH",
    "CLEAR_PATTERNS",
    "DELETE_EXCLUSION",
    "DELETE_FILE_PATTERN",
    "EXCLUSIONS",
    "GET_PATTERN",
    "GET_STATE",
    "GET_WATCH",
    "PATTERNS",
    "PUT_STATE",
    "REMOVE_WATCH",
    "SAVE_WATCH",
    "UPDATE_HEALTH",
    "UPSERT_EXCLUSION",
    "WATCHES",
]

_ALL = ("watch_id", *CONFIG_COLUMNS, *HEALTH_COLUMNS, "created_at", "updated_at")

ADD_WATCH = f"INSERT INTO watch_folders ({', '.join(_ALL)}) VALUES ({', '.join('?' * len(_ALL))})"  # noqa: S608
# Not INSERT OR REPLACE: it deletes the row first, and with it the patterns and exclusions that refer to it.
SAVE_WATCH = (
    f"UPDATE watch_folders SET {', '.join(f'{name} = ?' for name in CONFIG_COLUMNS)}, updated_at = ?"  # noqa: S608
    " WHERE watch_id = ?"
)
UPDATE_HEALTH = (
    f"UPDATE watch_folders SET {', '.join(f'{name} = ?' for name in HEALTH_COLUMNS)}, updated_at = ?"  # noqa: S608
    " WHERE watch_id = ?"
)
GET_WATCH = "SELECT * FROM watch_folders WHERE watch_id = ?"
BY_PATH = "SELECT * FROM watch_folders WHERE path = ? ORDER BY watch_id"
WATCHES = "SELECT * FROM watch_folders ORDER BY watch_id"
REMOVE_WATCH = "DELETE FROM watch_folders WHERE watch_id = ?"

PATTERNS = """SELECT * FROM watch_error_patterns WHERE watch_id = ?
    ORDER BY is_systematic DESC, confidence_score DESC, occurrence_count DESC, pattern_type, pattern_key"""
GET_PATTERN = "SELECT * FROM watch_error_patterns WHERE watch_id = ? AND pattern_type = ? AND pattern_key = ?"
ADD_PATTERN = """INSERT INTO watch_error_patterns (watch_id, pattern_type, pattern_key, occurrence_count,
    first_seen_at, last_seen_at, is_systematic, confidence_score, last_message) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (watch_id, pattern_type, pattern_key) DO UPDATE SET
    occurrence_count = excluded.occurrence_count, last_seen_at = excluded.last_seen_at,
    is_systematic = excluded.is_systematic, confidence_score = excluded.confidence_score,
    last_message = excluded.last_message"""
DELETE_FILE_PATTERN = """DELETE FROM watch_error_patterns
    WHERE watch_id = ? AND pattern_type = 'file_repeated' AND pattern_key = ?"""
CLEAR_PATTERNS = "DELETE FROM watch_error_patterns WHERE watch_id = ?"

EXCLUSIONS = "SELECT * FROM watch_exclusions WHERE watch_id = ? ORDER BY exclusion_type, exclusion_value"
UPSERT_EXCLUSION = """INSERT INTO watch_exclusions (watch_id, exclusion_type, exclusion_value, reason, error_count,
    created_at, expires_at, is_permanent) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (watch_id, exclusion_type, exclusion_value) DO UPDATE SET reason = excluded.reason,
    error_count = excluded.error_count, expires_at = excluded.expires_at, is_permanent = excluded.is_permanent"""
DELETE_EXCLUSION = (
    "DELETE FROM watch_exclusions WHERE watch_id = ? AND exclusion_type = ? AND exclusion_value = ?"
)

GET_STATE = "SELECT value FROM system_state WHERE key = ?"
PUT_STATE = """INSERT INTO system_state (key, value, updated_at) VALUES (?, ?, ?)
    ON CONFLICT (key) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at"""
