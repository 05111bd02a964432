"""Ports that another program has: said in words, and found out before workers would share one."""

from __future__ import annotations

import errno
import os
import socket

from vedette.cli.errors import CommandFailed

__all__ = ["explain_bind_errors", "require_free_port"]


class explain_bind_errors:
    """`with taken_port(…):` a port that another program has is said in words."""

    def __init__(self, host: str, port: int, option: str) -> None:
        self._place, self._option = f"{host}:{port}", option

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            text = f"{self._place} is taken by another program: end it, or choose another port with {self._option}."
            raise CommandFailed(text) from error
        if isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EADDRNOTAVAIL):
            text = f"{self._place} cannot be used: {os.strerror(error.errno)}. Choose another with {self._option}."
            raise CommandFailed(text) from error


def require_free_port(host: str, port: int, option: str) -> None:
    """Workers share their port (SO_REUSEPORT), with those of another server too: its clients would come here."""
    if not port:
        raise CommandFailed(f"Workers share one port: name it with {option}.")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with explain_bind_errors(host, port, option):
        socket.create_server((host, port), family=family).close()
