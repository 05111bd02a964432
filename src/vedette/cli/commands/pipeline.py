"""`vedette pipeline`: external collections to gateways, on Spark."""

from __future__ import annotations

import os
from threading import Event as Flag
from threading import Thread
from typing import Annotated

import typer

from vedette.cli.failure import CommandFailed
from vedette.cli.options import DEFAULT_DATA, DataOption, directory_of

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
) -> None:
    """Read the sources of a data directory, match their changes, deliver them to gateways, until Ctrl-C.

    \b
    Examples:
      vedette pipeline
      vedette pipeline --master spark://host:7077 --store postgresql://host/vedette
    """
    from vedette.cli.stopping import StopSignal
    from vedette.gateway.secret import directory_secret
    from vedette.pipeline.service import PipelineService
    from vedette.settings import load_settings

    directory = directory_of(data)
    if directory is None:
        raise CommandFailed(f"{data} is no directory. The pipeline keeps its checkpoints in one: --data DIR.")
    directory.mkdir(parents=True, exist_ok=True)
    stop = Flag()
    failures: list[BaseException] = []
    with StopSignal() as signal:
        settings = load_settings(directory, os.environ, pipeline_master=master)
        service = PipelineService(
            directory,
            secret=directory_secret(directory).hex(),
            store=store,
            master=settings.pipeline_master,
            retention_seconds=settings.journal_retention_seconds,
        )

        def run() -> None:
            try:
                service.run(stop)
            except BaseException as error:
                failures.append(error)
                raise

        thread = Thread(target=run, name="vedette-pipeline-run")
        thread.start()
        print("The pipeline is starting; Spark takes some seconds. Ctrl-C ends it.", flush=True)
        while thread.is_alive() and not signal.wait(0.5):
            pass
        stop.set()
        thread.join()
    if failures:
        raise failures[0]
    print("The pipeline has stopped; it goes on where it was.")
