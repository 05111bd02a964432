"""PostgreSQL tables as collections, through logical decoding."""

__all__: list[str] = []
