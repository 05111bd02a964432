"""PostgreSQL tables as collections, by logical decoding."""

__all__: list[str] = []
