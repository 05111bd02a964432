"""Every error that Vedette raises.

    VedetteError                     code, name, fields, retryable; str() is "class words CODE NAME: text"
    ├── ParseError                   parse error:             E1xxx  the text is not a statement
    ├── AnalysisError                analysis error:          E2xxx  unknown or clashing names and types
    ├── QueryError                   query error:             E21xx, E5003  a reading statement failed while it ran
    ├── PatternError                 pattern error:           E31xx  transitive and higher-order patterns
    ├── MutationError                mutation error:          E33xx, E35xx, E36xx  a writing statement failed
    ├── ConstraintViolation          constraint violation:    E3001 … E3014  a value, a modifier, a constraint
    ├── RuleError                    rule error:              E902x  rules that do not come to rest
    ├── GatewayError                 gateway error:           E40xx  the connection to a server
    ├── TransactionError             transaction error:       E50xx  the state of a transaction, a conflict
    ├── InvalidStatement             invalid statement type:  E1101 … the statement has no place here
    ├── StoreError                   store error:             E60xx  the data directory or the server behind it
    ├── SourceError                  source error:            E61xx  external collections and their readers
    ├── SubscriptionError            subscription error:      E62xx  what the pipeline is asked to watch
    ├── PipelineError                pipeline error:          E63xx  matching and delivering changes of collections
    ├── PolicyError                  policy error:            E70xx  permission
    ├── WatchError                   watch error:             E80xx  watches and deliveries
    ├── TimeError                    time error:              E9001, E9034  ticks and nondeterminism
    ├── FilterError                  filter error:            E1201 …  CEL expressions and filter lists
    ├── FolderError                  folder error:            E450x  watched folders and their handshake
    ├── IngestError                  ingest error:            E451x, E452x  files to vectors
    ├── SettingsError                settings error:          E0101  a setting that cannot be used
    └── InstallationError            installation error:      E0102  an optional package is not installed

Codes are stable: they stand on the wire, in logs and in docs/reference/errors.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol

__all__ = [
    "CODES",
    "AnalysisError",
    "ConstraintViolation",
    "Diagnostic",
    "FilterError",
    "FolderError",
    "IngestError",
    "InstallationError",
    "InvalidStatement",
    "MutationError",
    "ParseError",
    "PatternError",
    "PipelineError",
    "PolicyError",
    "QueryError",
    "RuleError",
    "SettingsError",
    "SourceError",
    "StoreError",
    "SubscriptionError",
    "TimeError",
    "TransactionError",
    "VedetteError",
    "WatchError",
]

CODES: Mapping[str, str] = {
    "E0101": "INVALID_SETTING",
    "E0102": "MISSING_EXTRA",
    "E1001": "UNEXPECTED_TOKEN",
    "E1002": "INVALID_LITERAL",
    "E1003": "INPUT_TOO_LARGE",
    "E1004": "NESTED_TOO_DEEPLY",
    "E1005": "INVALID_CHARACTER",
    "E1101": "NOT_ONE_STATEMENT",
    "E1102": "NOT_AVAILABLE",
    "E1201": "INVALID_FILTER",
    "E1202": "FILTER_TOO_COMPLEX",
    "E1203": "FILTER_EVALUATION_FAILED",
    "E2001": "UNKNOWN_TYPE",
    "E2002": "UNKNOWN_ATTRIBUTE",
    "E2003": "TYPE_MISMATCH",
    "E2004": "UNKNOWN_VARIABLE",
    "E2005": "DUPLICATE_NAME",
    "E2006": "UNKNOWN_FUNCTION",
    "E2007": "ARITY_MISMATCH",
    "E2008": "MISSING_PARAMETER",
    "E2009": "MISPLACED_EXPRESSION",
    "E2010": "INVALID_DECLARATION",
    "E2011": "INCOMPATIBLE_DEFINITION",
    "E2012": "PROTECTED_TYPE",
    "E2013": "ABSTRACT_TYPE",
    "E2101": "DIVISION_BY_ZERO",
    "E2102": "INVALID_ARGUMENT",
    "E2103": "COST_LIMIT_EXCEEDED",
    "E3001": "CONSTRAINT_VIOLATED",
    "E3002": "REQUIRED",
    "E3003": "UNIQUE",
    "E3004": "READONLY",
    "E3005": "OUT_OF_RANGE",
    "E3006": "NOT_IN_LIST",
    "E3007": "LENGTH",
    "E3008": "NO_MATCH",
    "E3009": "FORMAT",
    "E3010": "CARDINALITY",
    "E3011": "ACYCLIC",
    "E3012": "NO_SELF",
    "E3013": "NOT_NULL",
    "E3101": "INVALID_DEPTH",
    "E3102": "INVALID_PATTERN",
    "E3103": "NOT_BINARY",
    "E3301": "REFERENTIAL_ACTION_NOT_BINARY",
    "E3302": "DELETION_RESTRICTED",
    "E3303": "CASCADE_TOO_DEEP",
    "E3304": "CASCADE_TOO_LARGE",
    "E3501": "INVALID_EDGE_REFERENCE",
    "E3601": "NOT_FOUND",
    "E3602": "NOT_ONE_ROW",
    "E3603": "INVALID_TARGET",
    "E4501": "UNKNOWN_FOLDER_WATCH",
    "E4502": "INVALID_FOLDER_WATCH",
    "E4503": "FOLDER_UNAVAILABLE",
    "E4504": "QUEUE_UNAVAILABLE",
    "E4505": "UNKNOWN_FILE_TASK",
    "E4511": "UNREADABLE_FILE",
    "E4512": "UNUSABLE_CONTENT",
    "E4513": "FILE_TOO_LARGE",
    "E4514": "FILE_CHANGED_MEANWHILE",
    "E4521": "VECTOR_STORE_UNAVAILABLE",
    "E4522": "EMBEDDER_UNAVAILABLE",
    "E4523": "VECTORS_DO_NOT_FIT",
    "E4001": "UNAUTHORIZED",
    "E4002": "CONNECTION_LOST",
    "E4003": "REFUSED",
    "E4004": "SERVER_BUSY",
    "E4005": "PROTOCOL_VIOLATION",
    "E5001": "TRANSACTION_ALREADY_ACTIVE",
    "E5002": "CONFLICT",
    "E5003": "COLLECT_LIMIT_EXCEEDED",
    "E5004": "NO_TRANSACTION",
    "E5005": "TRANSACTION_ABORTED",
    "E5006": "UNKNOWN_SAVEPOINT",
    "E5007": "SESSION_CLOSED",
    "E5008": "SESSION_NOT_STARTED",
    "E6001": "WRITE_FAILED",
    "E6002": "DIRECTORY_IN_USE",
    "E6003": "UNUSABLE_DIRECTORY",
    "E6004": "UNKNOWN_FORMAT",
    "E6005": "READ_ONLY",
    "E6006": "LOG_TRIMMED",
    "E6007": "INVALID_DATABASE_NAME",
    "E6101": "INVALID_SOURCE",
    "E6102": "INVALID_DOCUMENT",
    "E6103": "SOURCE_NOT_FOUND",
    "E6104": "SOURCE_UNREACHABLE",
    "E6105": "SOURCE_POSITION_LOST",
    "E6106": "SOURCE_REFUSED",
    "E6201": "SUBSCRIPTION_EXISTS",
    "E6202": "SUBSCRIPTION_NOT_FOUND",
    "E6203": "SUBSCRIPTION_QUOTA_EXCEEDED",
    "E6204": "NOT_ANSWERED_BY_PIPELINE",
    "E6205": "REGISTRY_VERSION_GONE",
    "E6301": "DELIVERY_FAILED",
    "E6302": "INVALID_FRAME",
    "E6303": "PIPELINE_UNAVAILABLE",
    "E7001": "PERMISSION_DENIED",
    "E7002": "NO_ACTOR_BOUND",
    "E7003": "INVALID_ACTOR",
    "E7004": "POLICY_EVAL_ERROR",
    "E8001": "WATCH_PATTERN_DENIED",
    "E8002": "WATCH_NOT_FOUND",
    "E8003": "ACK_TIMEOUT",
    "E8004": "INVALID_DELIVERY_ID",
    "E8005": "WATCH_BUFFER_OVERFLOW",
    "E8006": "WATCH_LIMIT_EXCEEDED",
    "E8007": "DEAD_LETTER_FAILED",
    "E8008": "IMMUTABLE_WATCH_OPTION",
    "E8009": "INVALID_WATCH_OPTION",
    "E8010": "WATCH_ACCESS_DENIED",
    "E9001": "INVALID_TICK_AMOUNT",
    "E9021": "RULE_DEPTH_EXCEEDED",
    "E9022": "RULE_ACTIONS_EXCEEDED",
    "E9034": "NONDETERMINISTIC_CONSTRAINT",
}
RETRYABLE = frozenset({"E4004", "E5002", "E6104", "E6301"})


class Diagnostic(Protocol):
    """One position in a text that is wrong; see `vedette.language.diagnostics`."""

    def render(self) -> str:
        """The source line with the position underlined, and what to do."""
        ...


class VedetteError(Exception):
    """What went wrong, where, and what to do, with a stable code."""

    category: ClassVar[str] = "error"

    def __init__(
        self,
        code: str,
        text: str,
        *,
        fields: Mapping[str, Any] | None = None,
        diagnostics: Sequence[Diagnostic] = (),
    ) -> None:
        super().__init__(code, text)
        self.code = code
        self.name = CODES[code]
        self.text = text
        self.fields: dict[str, Any] = dict(fields or {})
        self.diagnostics = tuple(diagnostics)
        """For errors in a text: every position that is wrong, with its span."""

    @property
    def retryable(self) -> bool:
        """True if the same call may succeed when it is repeated."""
        return self.code in RETRYABLE

    def __str__(self) -> str:
        head = f"{self.category}: {self.code} {self.name}: {self.text}"
        if not self.diagnostics:
            return head
        return "\n".join([head, *(diagnostic.render() for diagnostic in self.diagnostics)])

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.code, self.text, self.fields, self.diagnostics)


def _rebuild(
    kind: type[VedetteError],
    code: str,
    text: str,
    fields: dict[str, Any],
    diagnostics: tuple[Diagnostic, ...],
) -> VedetteError:
    return kind(code, text, fields=fields, diagnostics=diagnostics)


class ParseError(VedetteError):
    category = "parse error"


class AnalysisError(VedetteError):
    category = "analysis error"


class QueryError(VedetteError):
    category = "query error"


class PatternError(VedetteError):
    category = "pattern error"


class MutationError(VedetteError):
    category = "mutation error"


class ConstraintViolation(VedetteError):
    category = "constraint violation"


class RuleError(VedetteError):
    category = "rule error"


class GatewayError(VedetteError):
    category = "gateway error"


class TransactionError(VedetteError):
    category = "transaction error"


class InvalidStatement(VedetteError):
    category = "invalid statement type"


class StoreError(VedetteError):
    category = "store error"


class SourceError(VedetteError):
    category = "source error"


class SubscriptionError(VedetteError):
    category = "subscription error"


class PipelineError(VedetteError):
    category = "pipeline error"


class PolicyError(VedetteError):
    category = "policy error"


class WatchError(VedetteError):
    category = "watch error"


class TimeError(VedetteError):
    category = "time error"


class FilterError(VedetteError):
    category = "filter error"


class FolderError(VedetteError):
    category = "folder error"


class IngestError(VedetteError):
    category = "ingest error"


class SettingsError(VedetteError):
    category = "settings error"


class InstallationError(VedetteError):
    category = "installation error"
