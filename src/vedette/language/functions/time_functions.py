"""Functions over timestamps and durations (spec/language.md §2.4). Every part of a timestamp is in UTC."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from vedette.errors import QueryError
from vedette.language.functions.formats import FORMATS
from vedette.language.value_kinds import format_for_error
from vedette.values import EPOCH, duration_to_ms, timestamp_from_text

__all__ = ["MILLISECONDS_PER_UNIT", "TIMESTAMP_FIELDS", "duration_in", "timestamp"]

TIMESTAMP_FIELDS: dict[str, Callable[[datetime], int]] = {
    "year": lambda moment: moment.year,
    "month": lambda moment: moment.month,
    "day": lambda moment: moment.day,
    "hour": lambda moment: moment.hour,
    "minute": lambda moment: moment.minute,
    "second": lambda moment: moment.second,
    "millisecond": lambda moment: moment.microsecond // 1000,
    "day_of_week": lambda moment: moment.isoweekday() % 7,  # 0 is Sunday
}
MILLISECONDS_PER_UNIT = {
    "milliseconds": 1,
    "seconds": 1_000,
    "minutes": 60_000,
    "hours": 3_600_000,
    "days": 86_400_000,
}


def timestamp(text: str) -> datetime:
    """Read ISO-8601, a date or a date and time; without an offset it is UTC."""
    if not FORMATS["iso_date"](text) and not FORMATS["iso_datetime"](text):
        raise QueryError(
            "E2102", f"timestamp() cannot read {format_for_error(text)}: write it like 2024-03-01T12:00:00Z"
        )
    try:
        moment = timestamp_from_text(text)
    except OverflowError:  # an offset that leads out of the calendar
        moment = datetime.min.replace(tzinfo=EPOCH.tzinfo)
    if moment < EPOCH:
        raise QueryError("E2102", f"timestamp() cannot read {format_for_error(text)}: it is before 1970")
    return moment


def duration_in(unit: str) -> Callable[[timedelta], int]:
    """Whole units in a duration, truncated toward zero."""
    size = MILLISECONDS_PER_UNIT[unit]

    def convert(duration: timedelta) -> int:
        total = duration_to_ms(duration)
        return total // size if total >= 0 else -(-total // size)

    return convert
