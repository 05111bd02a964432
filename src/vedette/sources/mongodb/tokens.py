"""Resume tokens given by a user: where to start reading collections that another system has read so far."""

from __future__ import annotations

import json
from typing import Any

from vedette.errors import SourceError

__all__ = ["resume_tokens"]


def resume_tokens(text: str) -> dict[str, dict[str, Any]]:
    """Parse the option `resume_after`: collection to the token of the last processed event. Raises E6101 if it is
    invalid."""
    try:
        tokens = json.loads(text or "{}")
    except ValueError:
        tokens = None
    if not isinstance(tokens, dict) or not all(isinstance(token, dict) for token in tokens.values()):
        why = 'resume_after is a JSON object, {"orders": {"_data": "…"}}: a token of MongoDB for each collection'
        raise SourceError("E6101", why, fields={"option": "resume_after"})
    return tokens
