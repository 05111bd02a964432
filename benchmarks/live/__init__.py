"""Live queries: the contenders, each behind the same few verbs (seam.py)."""
