"""`python -m vedette` is `vedette`."""

from vedette.cli import main

main()
