"""Work queues: the contenders, each behind the same few verbs (seam.py)."""
