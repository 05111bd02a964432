"""The gateway side of the ingest link for tests: receives and records deliveries, and fails on request."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from threading import Condition, Thread

from vedette.clock import SystemClock
from vedette.errors import PipelineError
from vedette.transport.ingest_messages import (
    Accepted,
    Complete,
    Deliver,
    DeliveredChange,
    FrameReader,
    Hello,
    Refused,
    Status,
    Welcome,
    WindowResult,
    encode_frame,
)

__all__ = ["IngestReceiver"]


class IngestReceiver:
    """Listens on a Unix socket. `changes` has every received change, `unique` omits duplicates."""

    def __init__(self, path: Path, *, secret: str = "") -> None:
        self.address = str(path)
        self.changes: list[DeliveredChange] = []
        self.windows: list[WindowResult] = []
        self.completed: list[Complete] = []
        self.statuses: list[Status] = []
        self.senders: list[str] = []
        """Names of the senders that connected."""
        self.accepting = True
        """If false, deliveries are read but not recorded or accepted, and the link is closed."""
        self.on_changes: Callable[[list[DeliveredChange]], object] | None = None
        """Called with each frame before it is accepted."""
        self._secret = secret
        self._received = Condition()
        self._open: list[socket.socket] = []
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(self.address)
        self._listener.listen()
        Thread(target=self._listen, daemon=True).start()

    @property
    def unique(self) -> dict[tuple[int, int, int], DeliveredChange]:
        """Changes by (partition, epoch, seq), without backfills for later subscriptions."""
        with self._received:
            return {(c.partition, c.epoch, c.seq): c for c in self.changes if not c.is_backfill}

    def wait_for(self, condition: Callable[[], bool], seconds: float = 240.0) -> bool:
        """Wait until the condition holds after a delivery. Return False on timeout."""
        clock = SystemClock()
        end = clock.monotonic() + seconds
        with self._received:
            while not condition():
                left = end - clock.monotonic()
                if left <= 0:
                    return False
                self._received.wait(min(left, 0.2))
        return True

    def close(self) -> None:
        self._listener.close()
        for link in self._open:
            link.close()

    def _listen(self) -> None:
        while True:
            try:
                link, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(link)
            Thread(target=self._serve, args=(link,), daemon=True).start()

    def _serve(self, link: socket.socket) -> None:
        reader = FrameReader()
        try:
            while data := link.recv(65_536):
                for frame in reader.feed(data):
                    match frame:
                        case Hello():
                            self._welcome(link, frame)
                        case Deliver(number=number, changes=changes, windows=windows):
                            self._record(lambda windows=windows: self.windows.extend(windows))  # type: ignore[misc]
                            self._accept(link, number, changes)
                        case Complete():
                            self._record(lambda frame=frame: self.completed.append(frame))  # type: ignore[misc]
                        case Status():
                            self._record(lambda frame=frame: self.statuses.append(frame))  # type: ignore[misc]
        except (OSError, PipelineError):
            pass
        finally:
            link.close()

    def _welcome(self, link: socket.socket, hello: Hello) -> None:
        if hello.secret != self._secret:
            link.sendall(encode_frame(Refused(reason="the secret is wrong")))
            raise OSError
        self.senders.append(hello.sender)
        link.sendall(encode_frame(Welcome(gateway="test")))

    def _accept(self, link: socket.socket, number: int, changes: list[DeliveredChange]) -> None:
        if not self.accepting:
            raise OSError
        if self.on_changes is not None:
            self.on_changes(changes)
        self._record(lambda: self.changes.extend(changes))
        link.sendall(encode_frame(Accepted(number=number)))

    def _record(self, action: Callable[[], object]) -> None:
        with self._received:
            action()
            self._received.notify_all()
