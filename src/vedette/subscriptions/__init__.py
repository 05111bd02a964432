"""Subscriptions to external collections.

The registry stores them, and a memory-mapped index finds the ones that a change concerns.
"""

__all__: list[str] = []
