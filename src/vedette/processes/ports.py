"""Error messages for TCP ports that are in use."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from vedette.processes.startup_error import StartupError

__all__ = ["explain_bind_errors", "require_free_port"]


@contextmanager
def explain_bind_errors(host: str, port: int, option: str) -> Iterator[None]:
    """Raise StartupError for a port that cannot be bound. `option` is the command-line option that changes it."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            text = (
                f"{host}:{port} is in use by another program. Stop it, or choose another port with {option}."
            )
        elif error.errno in (errno.EACCES, errno.EADDRNOTAVAIL):
            text = f"{host}:{port} cannot be used: {os.strerror(error.errno)}. Choose another with {option}."
        else:
            raise
        raise StartupError(text) from error


def require_free_port(host: str, port: int, option: str) -> None:
    """Raise StartupError if another program listens on the port.

    Gateway workers share their port (SO_REUSEPORT). Without this check they would also share it with another server,
    and some of its clients would connect here.
    """
    if not port:
        raise StartupError(f"Gateway workers share one port: set it with {option}.")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with explain_bind_errors(host, port, option):
        socket.create_server((host, port), family=family).close()
