"""A story host that runs a gateway: a real socket between the sessions of the story and its engine.

The engine uses the clock of the story, the gateway the real clock. The host reads some state directly from the engine
(names bound by a session, limits, stored data), because no client can query it. Results and events come over the wire.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event as Flag
from threading import Thread
from typing import Any, NamedTuple

import vedette
from tests.support.waiting import TIMEOUT_SECONDS
from vedette.change import Event
from vedette.client.blocking import BlockingSession, BlockingWatch
from vedette.clock import SystemClock
from vedette.engine.context.result import Result
from vedette.engine.data_directory import Vedette
from vedette.errors import GatewayError
from vedette.gateway.server.auth import AuthError, Grant
from vedette.gateway.service import GatewayService
from vedette.gateway.streams.client import Client
from vedette.testing.stories.embedded_host import EmbeddedHost
from vedette.testing.stories.host import HostSession, HostWatch
from vedette.values import timestamp_from_text

__all__ = ["GatewayHost"]

WAYS: Mapping[str, Mapping[str, Any]] = {
    "pushed": {"exclusive": True, "prefetch": 1_000},
    "shared": {"prefetch": 1_000},
    "pulled": {"prefetch": 0},
}
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


class _Loop:
    """One event loop for the servers of all stories of a run."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        Thread(target=self.loop.run_forever, name="story-gateways", daemon=True).start()

    def run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(TIMEOUT_SECONDS)


_shared_loop: list[_Loop] = []


def _loop() -> _Loop:
    if not _shared_loop:
        _shared_loop.append(_Loop())
    return _shared_loop[0]


class _ByName:
    """The token is the actor's id; without one it is the system context."""

    def authenticate(self, token: str, database: str | None) -> Grant:
        if not database:
            raise AuthError("invalid_auth", "database is required")
        return Grant(tenant=database, actor=token or None, is_system=not token)


class _Work(NamedTuple):
    """An event for the engine thread that runs a function of a test."""

    run: Callable[[], None]


class GatewayHost(EmbeddedHost):
    """`way` is how its sessions watch. `pushed`: exclusive watches, events as they are ready. `shared`: equal watches
    share a stream, as those of browsers do. `pulled`: events when the story polls, as in an embedded session.
    """

    def __init__(self, location: str | Path, settings: Mapping[str, Any], *, way: str = "pushed") -> None:
        self._how = WAYS[way]
        self._directory = location if isinstance(location, Path) else None
        self._sessions: list[_WireSession] = []
        super().__init__(location, settings)

    def _open(self) -> Vedette:
        catalog = super()._open()
        self._service = _loop().run(self._listen(catalog))
        return catalog

    async def _listen(self, catalog: Vedette) -> GatewayService:
        service = GatewayService(
            catalog, directory=self._directory, authenticator=_ByName(), clock=SystemClock()
        )
        broker = service.engine.broker
        handle = broker.handle_event

        def handle_or_run(event: Any) -> None:
            if isinstance(event, _Work):
                event.run()
            else:
                handle(event)

        broker.handle_event = handle_or_run  # type: ignore[method-assign]
        self._port = await service.start(port=0)
        return service

    def _stop(self) -> None:
        """Stop as a restart does: close the sockets, leave no server for the clients, close the engine."""
        _loop().run(self._service.stop(drain_seconds=0))
        sessions, self._sessions = self._sessions, []
        for session in sessions:
            session.wire.close()

    def on_engine(self, work: Callable[[], Any]) -> Any:
        """Run a function on the engine thread, between two batches, and return its result."""
        done = Flag()
        found: list[tuple[Any, BaseException | None]] = []

        def act() -> None:
            try:
                found.append((work(), None))
            except BaseException as error:
                found.append((None, error))
            done.set()

        self._service.engine.post_event(_Work(act))
        assert done.wait(TIMEOUT_SECONDS)
        result, error = found[0]
        if error is not None:
            raise error
        return result

    def define(self, text: str) -> None:
        administrator = self.session()
        try:
            administrator.wire.define(text)
        finally:
            administrator.close()

    def session(self, actor: str | None = None) -> Any:
        known = set(self._clients())
        url = f"ws://127.0.0.1:{self._port}"
        wire = vedette.connect_sync(url, token=actor or "", timeout=TIMEOUT_SECONDS)
        (client,) = [c for c in self._clients() if c not in known]
        session = _WireSession(self, wire, client, self._how)
        self._sessions.append(session)
        return session

    def _clients(self) -> list[Client]:
        return list(self.on_engine(lambda: list(self._service.engine.broker.subscriptions.clients.values())))

    def gone(self, client: Client) -> None:
        """Wait until the engine knows that a connection has ended."""
        clock = SystemClock()
        end = clock.monotonic() + TIMEOUT_SECONDS
        while client in self._clients():
            assert clock.monotonic() < end
        self.on_engine(lambda: None)

    def limit(self, session: HostSession, per_session: int, total: int) -> None:
        assert isinstance(session, _WireSession)
        inner = session.engine_session()
        inner.watch_limits = (per_session, total)

    def disconnect(self, session: HostSession) -> None:
        assert isinstance(session, _WireSession)
        session.lose()

    def advance(self, seconds: float) -> None:
        """Run due timers on the engine thread, where the timer thread would run beside it."""
        super().advance(seconds)
        self.on_engine(lambda: None)

    def restart(self) -> None:
        self._stop()
        super().restart()

    def validate(self) -> None:
        self.on_engine(super().validate)

    def contents(self) -> Mapping[str, Any]:
        return dict(self.on_engine(super().contents))

    def close(self) -> None:
        self._stop()
        super().close()


class _WireSession:
    """A connection of a client."""

    def __init__(
        self, host: GatewayHost, wire: BlockingSession, client: Client, how: Mapping[str, Any]
    ) -> None:
        self._host, self.wire, self._client = host, wire, client
        self._how = how
        self.over = False

    def engine_session(self) -> Any:
        return self._host.on_engine(self._client.own_session)

    @property
    def bindings(self) -> Mapping[str, str]:
        session = self._client.session
        return dict(session.bindings) if session is not None else {}

    def execute(self, text: str, params: Mapping[str, Any], /) -> Result:
        return _revived(self.wire.execute(text, params))

    def run(self, script: str, params: Mapping[str, Any], /) -> list[Result]:
        return [_revived(result) for result in self.wire.run(script, params)]

    def watch(self, text: str, params: Mapping[str, Any], /) -> HostWatch:
        return _WireWatch(self, self.wire.watch(text, params, **self._how))

    def attach(self, handle: str, /) -> HostWatch:
        return _WireWatch(self, self.wire.attach(handle, prefetch=self._how.get("prefetch")))

    @property
    def pulls(self) -> bool:
        return self._how.get("prefetch") == 0

    def barrier(self) -> None:
        """Wait until all earlier events have arrived. Two requests: a reply precedes the events of its batch."""
        for _ in range(0 if self.over else 2):
            self.wire.wait(self.wire._session.request("unsubscribe", {"id": "nothing"}))

    def close(self) -> None:
        self.over = True
        self.wire.close()
        self._host.gone(self._client)

    def lose(self) -> None:
        self.over = True

        async def abort() -> None:
            session = self.wire._session
            session._closed = True
            socket = session._socket
            if socket is not None:
                socket.transport.abort()

        self.wire.wait(abort())
        self._host.gone(self._client)


class _WireWatch:
    def __init__(self, session: _WireSession, watch: BlockingWatch) -> None:
        self._session, self._watch = session, watch

    @property
    def id(self) -> str:
        return self._watch.handle or self._watch.id

    @property
    def status(self) -> str:
        return self._watch.status

    def poll(self, limit: int | None = None) -> Sequence[Event]:
        if self._session.over:
            return []
        if self._session.pulls:
            return [_live_event(event) for event in self._pulled(limit)]
        self._session.barrier()
        return [_live_event(event) for event in self._watch.poll(limit)]

    def _pulled(self, limit: int | None) -> Sequence[Event]:
        try:
            return self._watch.pull(limit)
        except GatewayError as error:  # the watch has ended
            if "unknown_subscription" not in str(error):
                raise
            return []

    def errors(self) -> Sequence[Any]:
        self._session.barrier()
        return self._watch.errors()

    def ack(self, event: Event) -> None:
        self._watch.ack(event)
        self._session.barrier()


def _revived(result: Result) -> Result:
    result.rows = [tuple(map(_live, row)) for row in result.rows]
    return result


def _live_event(event: Event) -> Event:
    return replace(
        event,
        match=_live(event.match),
        prev=_live(event.prev),
        matches=tuple(map(_live, event.matches)) if event.matches is not None else None,
        events=tuple(map(_live_event, event.events)) if event.events is not None else None,
    )


def _live(value: Any) -> Any:
    """Convert timestamps, which are texts on the wire. Stories use no such texts for other values."""
    if isinstance(value, str) and _MOMENT.fullmatch(value):
        return timestamp_from_text(value)
    if isinstance(value, list):
        return [_live(each) for each in value]
    if isinstance(value, dict):
        return {name: _live(each) for name, each in value.items()}
    return value
