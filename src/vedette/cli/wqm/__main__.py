"""`python -m vedette.cli.wqm`."""

from __future__ import annotations

from vedette.cli.wqm import main

__all__: list[str] = []

main()
