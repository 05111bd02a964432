"""What matching changes against very many subscriptions costs."""

__all__: list[str] = []
