"""Work queues: the contenders, each with the same interface (seam.py)."""
