"""The language: text ▸ tokens ▸ syntax ▸ resolved ▸ plan; CEL and filter lists share its expression tree."""

__all__: list[str] = []
