"""The named formats, one predicate each. `[format: …]` and the `is_…` functions use them.

docs/reference/language/ontology.md#attributes lists the formats.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from datetime import date, datetime
from urllib.parse import urlsplit

__all__ = ["FORMATS"]

# These expressions match the whole text, and each can match a text in only one way, so they do not backtrack.
_EMAIL_LOCAL = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*")
_HOST_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_URL = re.compile(r"https?://[^\s\\]+", re.IGNORECASE)
_UUID = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}")
_SLUG = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_PHONE = re.compile(r"\+[1-9][0-9]{1,14}")
_ISO_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_ISO_DATETIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]+)?)?(?:Z|[+-][0-9]{2}:[0-9]{2})?"
)


def _is_email(text: str) -> bool:
    local, at, domain = text.rpartition("@")
    if not at or len(text) > 254 or len(local) > 64 or not _EMAIL_LOCAL.fullmatch(local):
        return False
    return "." in domain and all(_HOST_LABEL.fullmatch(label) for label in domain.split("."))


def _is_url(text: str) -> bool:
    if not _URL.fullmatch(text):
        return False
    try:
        parts = urlsplit(text)
        return bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return False


def _is_uuid(text: str) -> bool:
    return _UUID.fullmatch(text) is not None


def _is_slug(text: str) -> bool:
    return _SLUG.fullmatch(text) is not None


def _is_phone(text: str) -> bool:
    return _PHONE.fullmatch(text) is not None


def _is_iso_date(text: str) -> bool:
    return _ISO_DATE.fullmatch(text) is not None and _parses(date.fromisoformat, text)


def _is_iso_datetime(text: str) -> bool:
    return _ISO_DATETIME.fullmatch(text) is not None and _parses(datetime.fromisoformat, text)


def _is_ipv4(text: str) -> bool:
    return text.isascii() and _parses(ipaddress.IPv4Address, text)


def _is_ipv6(text: str) -> bool:
    return "%" not in text and _parses(ipaddress.IPv6Address, text)


def _parses(parse: Callable[[str], object], text: str) -> bool:
    try:
        parse(text)
    except ValueError:
        return False
    return True


FORMATS: Mapping[str, Callable[[str], bool]] = {
    "email": _is_email,
    "url": _is_url,
    "uuid": _is_uuid,
    "slug": _is_slug,
    "phone": _is_phone,
    "iso_date": _is_iso_date,
    "iso_datetime": _is_iso_datetime,
    "ipv4": _is_ipv4,
    "ipv6": _is_ipv6,
}
