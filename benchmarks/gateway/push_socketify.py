"""A socketify server that sends every message of /pub to all clients of /sub. The port is the first argument."""

from __future__ import annotations

import sys
from typing import Any

from socketify import App, OpCode

__all__: list[str] = []


def main(port: int) -> None:
    app: Any = App()
    app.ws("/sub", {"open": lambda socket: socket.subscribe("all")})
    app.ws("/pub", {"message": lambda _, text, __: app.publish("all", text, OpCode.TEXT)})
    app.listen({"port": port, "host": "127.0.0.1"}, lambda _: None)
    app.run()


main(int(sys.argv[1]))
