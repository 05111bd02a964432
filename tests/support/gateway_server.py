"""A real server on a real socket, in its own thread with its own event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from threading import Event, Thread
from typing import Any

from vedette.console.app import make_app
from vedette.console.http_server import MAX_CONNECTIONS, HttpServer
from vedette.console.metrics import service_metrics
from vedette.console.page import ServerInfo
from vedette.engine.data_directory import Vedette, open_vedette
from vedette.gateway.limits import GatewayLimits
from vedette.gateway.server.tls import make_tls_context
from vedette.gateway.service import GatewayService

__all__ = ["Serving"]


class Serving:
    """`with Serving(directory) as server:` listens on a free port of the loopback address."""

    def __init__(
        self, directory: Path | None = None, *, limits: GatewayLimits | None = None, **settings: Any
    ) -> None:
        self._directory = directory
        self._limits = limits
        self._settings = settings
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready = Event()
        self._done: asyncio.Event | None = None
        self._thread = Thread(target=self._main, daemon=True)
        self._failure: BaseException | None = None
        self.drain_seconds = 5.0
        self.most_http = MAX_CONNECTIONS
        self.runner: Callable[[Coroutine[Any, Any, None]], None] = asyncio.run
        self.port = 0
        self.http_port = 0
        self.vedette: Vedette
        self.service: GatewayService

    def __enter__(self) -> Serving:
        self._thread.start()
        assert self._ready.wait(60)
        if self._failure is not None:
            raise self._failure
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        if self._thread.is_alive() and self._loop is not None and self._done is not None:
            self._loop.call_soon_threadsafe(self._done.set)
        self._thread.join(60)
        assert not self._thread.is_alive()

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}"

    @property
    def web(self) -> str:
        return f"http://127.0.0.1:{self.http_port}"

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        assert self._loop is not None
        return self._loop

    def on_loop(self, work: Callable[[], Any]) -> Any:
        """Run a function on the server's event loop and return its result."""
        assert self._loop is not None

        async def run() -> Any:
            return work()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(60)

    def _main(self) -> None:
        try:
            self.runner(self._serve())
        except BaseException as error:
            self._failure = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        location = str(self._directory) if self._directory is not None else ":memory:"
        with open_vedette(location, environment={}, manage_gc=False, **self._settings) as opened:
            self.vedette = opened
            self.service = GatewayService(opened, directory=self._directory, limits=self._limits)
            self._loop, self._done = asyncio.get_running_loop(), asyncio.Event()
            self.port = await self.service.start(port=self.port)
            app = make_app(
                self.service.router,
                metrics_source=service_metrics(self.service),
                ready=lambda: None,
                server_info=lambda: ServerInfo(port=self.port, databases=tuple(opened.databases())),
                allowed_origins=opened.settings.allowed_origins,
            )
            http = HttpServer(app, tls=make_tls_context(opened.settings, self.most_http))
            self.http_port = await http.start("127.0.0.1", 0)
            self._ready.set()
            await self._done.wait()
            await http.stop()
            await self.service.stop(drain_seconds=self.drain_seconds)
