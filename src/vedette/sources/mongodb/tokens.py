"""Resume tokens that a user gives: where to begin reading collections that somebody else has read so far."""

from __future__ import annotations

import json
from typing import Any

from vedette.errors import SourceError

__all__ = ["resume_tokens"]


def resume_tokens(text: str) -> dict[str, dict[str, Any]]:
    """The option `resume_after`: by collection, the token of the last event that somebody had; E6101 when it is not."""
    try:
        tokens = json.loads(text or "{}")
    except ValueError:
        tokens = None
    if not isinstance(tokens, dict) or not all(isinstance(token, dict) for token in tokens.values()):
        why = 'resume_after is a JSON object, {"orders": {"_data": "…"}}: a token of MongoDB for each collection'
        raise SourceError("E6101", why, fields={"option": "resume_after"})
    return tokens
