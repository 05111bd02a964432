"""Folders of files as a source: what was created, changed, moved or deleted, also while nobody looked.

A notification of the operating system is only a hint that something at a path deserves a look. What happened is found
by comparing the file with what was last seen of it (`seen`), so that a lost or doubled hint does no harm: the next
look, or the next scan of the whole folder, finds what it left out.
"""

__all__: list[str] = []
