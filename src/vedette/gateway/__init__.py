"""The wire: frames, one connection as a protocol without I/O, replay and resume, and a thin shell around them."""

__all__: list[str] = []
