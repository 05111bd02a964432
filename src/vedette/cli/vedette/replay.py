"""`vedette capture`, `replay` and `shadow`: compare matcher versions on recorded changes."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from vedette.cli.errors import CommandFailed
from vedette.cli.options import DEFAULT_DATA, DataOption, journal_address, local_directory
from vedette.extras import require_extra

__all__ = ["capture", "replay", "shadow"]

OutOption = Annotated[str, typer.Option("--out", metavar="PATH", help="Output path.")]
CaptureArgument = Annotated[
    str, typer.Argument(metavar="CAPTURE", help="A folder that `vedette capture` wrote.")
]


def capture(
    out: OutOption,
    data: DataOption = DEFAULT_DATA,
    after: Annotated[
        int, typer.Option("--after", metavar="OFFSET", help="Only changes after this offset.")
    ] = 0,
    share: Annotated[
        float, typer.Option("--share", min=0.0, max=1.0, help="Share of documents to include.")
    ] = 1.0,
    mask: Annotated[
        list[str] | None,
        typer.Option("--mask", metavar="FIELD", help="Field whose values are replaced by codes."),
    ] = None,
) -> None:
    """Write the recorded changes of external collections as Parquet, sampled and with masked fields.

    \b
    Example:
      vedette capture --out /tmp/monday --share 0.1 --mask email --mask address.street
    """
    require_extra("pipeline", "`vedette capture`")
    from vedette.clock import system_random
    from vedette.pipeline.queries.capture import capture as write_capture
    from vedette.pipeline.session import open_session
    from vedette.sources.journal.seam import open_journal

    directory = local_directory(data)
    if directory is None or not (directory / "index").is_dir():
        raise CommandFailed(f"{data} has no subscription index yet. Run `vedette pipeline` on it first.")
    journal = open_journal(journal_address(directory))
    address = journal.address
    journal.close()
    session = open_session(show_progress=sys.stderr.isatty())
    salt = f"{system_random().getrandbits(64):x}"
    taken = write_capture(
        session, address, directory / "index", out, after=after, sample_rate=share, mask=mask or [], salt=salt
    )
    session.stop()
    print(f"{taken} changes are in {out}.")


def replay(capture: CaptureArgument, out: OutOption) -> None:
    """Match a capture against its subscriptions and write the matches."""
    require_extra("pipeline", "`vedette replay`")
    from vedette.pipeline.queries.replay import replay as write_matches
    from vedette.pipeline.session import open_session

    session = open_session(show_progress=sys.stderr.isatty())
    write_matches(session, capture, out)
    session.stop()
    print(f"The matches are in {out}.")


def shadow(
    capture: CaptureArgument,
    candidate: Annotated[
        Path,
        typer.Option(
            "--candidate",
            metavar="PATH",
            help="The version to compare: a wheel, a virtual environment, or a folder with the package.",
        ),
    ],
    threshold: Annotated[
        float, typer.Option("--threshold", min=0.0, max=1.0, help="Share of matches that may differ.")
    ] = 0.0,
) -> None:
    """Replay a capture with this version and another one, and compare. The exit code is 1 above the threshold."""
    require_extra("pipeline", "`vedette shadow`")
    from vedette.pipeline.queries.shadow import shadow as compare_versions
    from vedette.pipeline.session import open_session

    session = open_session(show_progress=sys.stderr.isatty())
    with tempfile.TemporaryDirectory() as work:
        found = compare_versions(session, capture, candidate, Path(work))
    session.stop()
    print(f"matched by both         {found.matched_by_both}")
    print(f"only by this version    {found.only_current}")
    print(f"only by the candidate   {found.only_candidate}")
    print(f"routed differently      {found.routed_differently}")
    print(f"median batch, ms        {found.current_ms:.1f} ▸ {found.candidate_ms:.1f}")
    print(f"divergence              {found.divergence:.6f} (threshold {threshold})")
    if found.divergence > threshold:
        raise typer.Exit(1)
