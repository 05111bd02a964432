"""`vedette pipeline`: external collections to gateways, on Spark."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event as Flag
from threading import Thread
from typing import TYPE_CHECKING, Annotated

import typer

from vedette.cli.errors import CommandFailed
from vedette.cli.options import DEFAULT_DATA, DataOption, LogFormatOption, LogLevelOption, local_directory
from vedette.extras import require_extra
from vedette.processes.logging_setup import LogFormat, LogLevel, LogOptions, process_logging
from vedette.processes.pipeline_runner import LOCK_FILE, redirect_output_to_log

if TYPE_CHECKING:
    from vedette.processes.pipeline_process import PipelineProcess
    from vedette.settings import Settings

__all__ = ["pipeline"]


def pipeline(
    data: DataOption = DEFAULT_DATA,
    master: Annotated[
        str | None,
        typer.Option(
            "--master", metavar="URL", help="The Spark master; default: the setting pipeline_master."
        ),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            "--store", metavar="URL", help="PostgreSQL for journal and registry; default: files in DIR."
        ),
    ] = None,
    log_level: LogLevelOption = LogLevel.WARNING,
    log_format: LogFormatOption = LogFormat.TEXT,
    role: Annotated[str, typer.Option("--role", hidden=True)] = "",
) -> None:
    """Read the sources of a data directory, match their changes, deliver them to gateways, until Ctrl-C.

    \b
    Examples:
      vedette pipeline
      vedette pipeline --master spark://host:7077 --store postgresql://host/vedette
    """
    require_extra("pipeline", "`vedette pipeline`")
    directory = local_directory(data)
    if directory is None:
        raise CommandFailed(f"{data} is no directory. The pipeline keeps its checkpoints in one: --data DIR.")
    directory.mkdir(parents=True, exist_ok=True)
    supervised = role == "child"
    before = redirect_output_to_log(directory) if supervised else None
    logs = LogOptions(level=log_level, format=log_format)
    with process_logging(logs, process="pipeline", announce=None if supervised else data, copy_to=before):
        _run(directory, master=master, store=store, supervised=supervised)


def _run(directory: Path, *, master: str | None, store: str | None, supervised: bool) -> None:
    """Run the pipeline in a thread until it is asked to stop."""
    from vedette.processes.audit_log import audit_logging
    from vedette.processes.signals import StopSignal
    from vedette.settings import load_settings

    stop = Flag()
    failures: list[BaseException] = []
    with _exclusive(directory), StopSignal() as signal:
        settings = load_settings(directory, os.environ, pipeline_master=master)
        service = _open_service(directory, settings, store, ui=not supervised)

        def run() -> None:
            try:
                service.run(stop)
            except BaseException as error:
                failures.append(error)

        with audit_logging(
            directory,
            process="pipeline",
            max_bytes=settings.audit_log_bytes,
            max_files=settings.audit_log_files,
        ):
            thread = Thread(target=run, name="vedette-pipeline-run")
            thread.start()
            if not supervised:
                print("The pipeline is starting; Spark takes some seconds. Ctrl-C ends it.", flush=True)
            while thread.is_alive() and not signal.wait(0.1) and not (supervised and _is_orphan()):
                pass
            stop.set()
            if not service.spark_started and not failures:
                os._exit(
                    0
                )  # Java is still starting: nothing has to be closed, and Java ends with this process
            thread.join()
    if failures:
        raise failures[0]
    if not supervised:
        print("The pipeline has stopped. The next start continues where it ended.")


def _open_service(directory: Path, settings: Settings, store: str | None, *, ui: bool) -> PipelineProcess:
    from vedette.control.controller import ServiceObjectives
    from vedette.processes.pipeline_process import PipelineProcess
    from vedette.transport.secret import load_or_create_secret

    return PipelineProcess(
        directory,
        secret=load_or_create_secret(directory).hex(),
        store=store or settings.pipeline_store or None,
        master=settings.pipeline_master,
        retention_seconds=settings.journal_retention_seconds,
        objectives=ServiceObjectives(
            lag_limit_seconds=settings.pipeline_lag_limit_seconds,
            delivery_p99_seconds=settings.slo_delivery_seconds,
            max_false_positive_rate=settings.slo_false_positive_share,
        ),
        metrics_port=settings.pipeline_metrics_port,
        max_mapped_index_bytes=settings.pipeline_index_megabytes << 20,
        ui=ui,
    )


@contextmanager
def _exclusive(directory: Path) -> Iterator[None]:
    """One pipeline at a time works on a data directory."""
    from vedette.errors import StoreError
    from vedette.storage.sqlite.lock import EngineLock

    try:
        lock = EngineLock(directory / LOCK_FILE)
    except StoreError as error:
        text = (
            f"A pipeline runs on {directory} already (pid {error.fields.get('pid')}). `vedette serve` starts one by "
            "itself when there is a source; with --no-pipeline it leaves that to you."
        )
        raise CommandFailed(text) from error
    try:
        yield
    finally:
        lock.release()


def _is_orphan() -> bool:
    """Whether the supervisor, which holds the other end of our standard input, is gone."""
    ready, _, _ = select.select([sys.stdin], [], [], 0)
    return bool(ready) and not os.read(sys.stdin.fileno(), 4096)
