"""Run one reader: start it, poll it, recover from gaps, wait after errors.

    start    a scan of everything and then the stream, or the stream from now on
    poll     append new changes; the append comes before the acknowledgement to the source

If a source no longer has the changes after the stored position (E6105), its partitions become *stale*. Nothing is
delivered until a scan has been compared with the journal's last images and the difference appended. Subscribers that
follow a state lose nothing: all changes of a document since the gap arrive as one change. With the option
`on_gap: resync` the partitions also start a new epoch, and clients resync. A source with `start: now` was never
scanned; with `on_gap: resync` it is not scanned after a gap either, and its last images are deleted.
"""

from __future__ import annotations

import logging
from threading import Event as Flag

from vedette.clock import Clock
from vedette.errors import SourceError, VedetteError
from vedette.sources.journal.seam import CollectionJournal
from vedette.sources.rate_limit import RateLimiter
from vedette.sources.reader import SourceHealth, SourceReader
from vedette.sources.records import FIRST_SCAN, Source

__all__ = ["run_reader"]

log = logging.getLogger(__name__)

POLL_SECONDS = 0.5
"""Maximum wait of one poll, and the pause between two checks of a paused source."""


def run_reader(
    reader: SourceReader,
    journal: CollectionJournal,
    source: Source,
    stop: Flag,
    clock: Clock,
    health: SourceHealth,
) -> None:
    """Read a source until `stop` is set or the source is removed. Every error is logged and retried after a delay."""
    limiter = RateLimiter.from_options(source.options, clock)
    recovered = False
    while not stop.is_set():
        try:
            pause = POLL_SECONDS if journal.source(source.name).paused else health.seconds_until_allowed()
            if pause:
                stop.wait(pause)
                continue
            events, size = _poll_once(reader, journal, source, recovered=recovered)
            recovered = True
            health.record_success()
            stop.wait(limiter.delay_after(events, size))
        except VedetteError as error:
            if error.code == "E6103":
                _release(reader, source)
                health.unregister()
                return
            _log_failure(source, error)
            stop.wait(health.record_failure(error))


def _poll_once(
    reader: SourceReader, journal: CollectionJournal, source: Source, *, recovered: bool
) -> tuple[int, int]:
    """Start the reader if necessary, and poll once.

    An unexpected exception becomes E6104 and is retried: one document must not end the reader.
    """
    try:
        if journal.resume_token(source.name) is None:
            _start(reader, journal, source)
        try:
            if not recovered:
                _recover_interrupted_start(journal, source)
            return reader.poll(POLL_SECONDS)
        except SourceError as error:
            if error.code != "E6105":
                raise
            _recover_from_gap(reader, journal, source, error)
            return 0, 0
    except VedetteError:
        raise
    except Exception as problem:
        log.exception(
            "The reader of source %s failed",
            source.name,
            extra={"action": "source.reader_crashed", "source": source.name},
        )
        text = f"the reader of {source.name} failed ({type(problem).__name__}: {str(problem)[:300]})"
        raise SourceError("E6104", text, fields={"source": source.name}) from problem


def _recover_interrupted_start(journal: CollectionJournal, source: Source) -> None:
    """Finish what a crash interrupted. A completed first scan is marked live. An unfinished gap recovery raises E6105,
    and the gap is recovered again."""
    reasons = {p.reason for p in journal.partitions(source.name) if p.state != "live"}
    if reasons == {FIRST_SCAN}:
        journal.set_state(
            source.name, "live"
        )  # the first scan stores the resume token last, so it is complete
    elif reasons:
        raise SourceError(
            "E6105", f"the reader ended before it had recovered from a gap ({', '.join(sorted(reasons))})"
        )


def _start(reader: SourceReader, journal: CollectionJournal, source: Source) -> None:
    journal.set_state(source.name, "catching-up", FIRST_SCAN)
    reader.start(scan=source.options.get("start", "beginning") == "beginning")
    journal.set_state(source.name, "live")


def _recover_from_gap(
    reader: SourceReader, journal: CollectionJournal, source: Source, error: VedetteError
) -> None:
    """Scan the source again, or start from now with a new epoch, as the options `on_gap` and `start` say."""
    extra = {"action": "source.stale", "source": source.name, "code": error.code}
    log.error(
        "Source %s no longer has the changes after the last position: %s", source.name, error, extra=extra
    )
    journal.set_state(source.name, "stale", error.text)
    resync = source.options.get("on_gap", "scan") == "resync"
    scan = not resync or source.options.get("start", "beginning") == "beginning"
    if scan:
        journal.set_state(source.name, "catching-up", "scanning after a gap")
    else:
        journal.delete_images(source.name)  # images from before the gap must not be part of a new snapshot
    reader.start(scan=scan)
    journal.set_state(source.name, "live", new_epoch=resync)


def _release(reader: SourceReader, source: Source) -> None:
    try:
        reader.release_server_resources()
    except VedetteError as error:
        extra = {"action": "source.release_failed", "source": source.name, "code": error.code}
        log.warning(
            "Could not release the server resources of removed source %s: %s", source.name, error, extra=extra
        )


def _log_failure(source: Source, error: VedetteError) -> None:
    extra = {"action": "source.failed", "source": source.name, "code": error.code}
    log.warning("Reading source %s failed; retrying: %s", source.name, error, extra=extra)
