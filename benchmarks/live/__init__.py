"""Live queries: the contenders, each with the same interface (seam.py)."""
