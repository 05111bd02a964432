"""`vedette doctor`: check the machine and the data directory."""

from __future__ import annotations

import typer

from vedette.cli.options import DEFAULT_DATA, DataOption, JsonOption

__all__ = ["doctor"]

_CHECK_WIDTH = len("vedette[pipeline]")
_STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def doctor(data: DataOption = DEFAULT_DATA, json: JsonOption = False) -> None:
    """Check this machine and the data directory.

    Each line shows a result, and what to do if something is missing. Nothing is changed; a probe file in the data
    directory, or in its nearest existing parent, is removed at once. The exit code is 1 if a check fails. Warnings do
    not change it.

    \b
    Examples:
      vedette doctor
      vedette doctor --data /var/lib/vedette
    """
    import os
    from dataclasses import asdict
    from pathlib import Path

    from rich.text import Text

    from vedette.cli.options import local_directory
    from vedette.cli.output.display import console_for
    from vedette.cli.output.tables import json_line
    from vedette.cli.output.values import escape_controls
    from vedette.cli.vedette.doctor_checks import DoctorContext, run_checks
    from vedette.clock import SystemClock

    directory = local_directory(data) or Path.cwd()
    console, failed = console_for(), False
    context = DoctorContext(
        directory=directory, clock=SystemClock(), java_directory=os.environ.get("JAVA_HOME")
    )
    for finding in run_checks(context):
        failed = failed or finding.status == "fail"
        if json:
            print(json_line(asdict(finding)))
            continue
        line = Text.assemble(
            (f"{finding.status:<4}  ", _STYLES[finding.status]), f"{finding.check:<{_CHECK_WIDTH}} "
        )
        console.print(line.append(escape_controls(finding.found)), soft_wrap=True)
        if finding.advice:
            console.print(Text(f"{'':<{_CHECK_WIDTH + 7}}{finding.advice}", style="dim"), soft_wrap=True)
    if failed:
        raise typer.Exit(1)
