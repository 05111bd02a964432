"""Validate a source before it is added: its name, kind, options and address. Nothing is connected."""

from __future__ import annotations

from collections.abc import Iterable

from vedette.clock import SystemClock
from vedette.errors import SourceError
from vedette.extras import require_packages
from vedette.sources.rate_limit import RateLimiter
from vedette.sources.records import Source

__all__ = ["require_pymongo", "validate_source"]

OPTIONS_OF_KIND = {
    "mongodb": {"database", "collections", "pre_images", "resume_after"},
    "postgres": {"tables", "slot"},
    "graph": set[str](),
}
_COMMON_OPTIONS = {"start", "on_gap", "events_per_second", "bytes_per_second"}
_CHOICES = {"start": ("beginning", "now"), "on_gap": ("scan", "resync"), "pre_images": ("true", "false")}


def validate_source(source: Source, others: Iterable[Source] = ()) -> None:
    """Raise E6101 for an invalid name, kind, option or address, and for a second graph source of a database."""
    if not source.name.isidentifier() or source.name.startswith("_"):
        raise _invalid(
            f"{source.name!r} is not a valid name: use letters, digits and _, and start with a letter"
        )
    if source.kind not in OPTIONS_OF_KIND:
        raise _invalid(
            f"unknown kind of source {source.kind!r}; known kinds are {', '.join(OPTIONS_OF_KIND)}"
        )
    if not 1 <= source.partitions <= 256:
        raise _invalid(f"a source has 1 to 256 partitions, not {source.partitions}")
    allowed = _COMMON_OPTIONS | OPTIONS_OF_KIND[source.kind]
    for name, value in source.options.items():
        if name not in allowed:
            raise _invalid(f"{source.kind} has no option {name!r}; it has {', '.join(sorted(allowed))}")
        if name in _CHOICES and value not in _CHOICES[name]:
            raise _invalid(f"{name} must be {' or '.join(_CHOICES[name])}, not {value!r}")
        if name == "resume_after":
            _check_resume_after(value)
    RateLimiter.from_options(source.options, SystemClock())
    _check_address(source)
    for other in others:
        if other.kind == source.kind == "graph" and other.tenant == source.tenant:
            raise _invalid(
                f"database {source.tenant} already has the graph source {other.name}; the types of two graphs would mix"
            )


def _check_resume_after(text: str) -> None:
    require_pymongo()
    from vedette.sources.mongodb.change_events import (
        parse_resume_after,  # imports pymongo, an optional package
    )

    parse_resume_after(text)


def _check_address(source: Source) -> None:
    """Raise E6101 if the address cannot be parsed. Only the reader connects to it."""
    check = _ADDRESS_CHECKS.get(source.kind)
    if check is None:
        return
    problem = check(source.address)
    if problem:
        raise _invalid(f"invalid address for a {source.kind} source ({' '.join(problem.split())})")


def _mongodb_problem(address: str) -> str:
    """Return the reason why the address is not a MongoDB URI; empty if it is one."""
    require_pymongo()
    from pymongo import uri_parser
    from pymongo.errors import PyMongoError

    if address.startswith("mongodb+srv://"):  # parsing it would query DNS
        return ""
    try:
        uri_parser.parse_uri(address, validate=False)
    except (PyMongoError, ValueError) as problem:
        return str(problem)
    return ""


def _postgres_problem(address: str) -> str:
    """Return the reason why the address is not a PostgreSQL address; empty if it is one."""
    from psycopg import Error
    from psycopg.conninfo import conninfo_to_dict

    try:
        conninfo_to_dict(address)
    except (Error, ValueError) as problem:
        return str(problem)
    return ""


_ADDRESS_CHECKS = {"mongodb": _mongodb_problem, "postgres": _postgres_problem}


def require_pymongo() -> None:
    require_packages(["pymongo"], extra="pipeline", feature="a MongoDB source")


def _invalid(text: str) -> SourceError:
    return SourceError("E6101", text)
