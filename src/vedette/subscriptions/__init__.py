"""Which subscriptions a change concerns, for millions of them: shapes, an index in files, a registry."""

__all__: list[str] = []
