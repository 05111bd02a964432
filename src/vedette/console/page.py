"""The web console: a page that connects to the gateway like any other client."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response

__all__ = ["STATIC", "ServerInfo", "front_page", "info_response"]

STATIC = Path(__file__).parent / "static"
_INDEX_TEXT = """Vedette. Endpoints:

  /                                             web console
  /health, /ready, /metrics                     health checks and metrics
  POST /v1/databases/{database}/execute         {"statement": "MATCH t: Task RETURN t", "params": {}}
  POST /v1/databases/{database}/define          {"ontology": "node Task { title: String }"}
  /realtime/v1/databases/{database}/sse         ?collection=Task or ?watch=WATCH…: server-sent events
  /static/vedette.js                            browser client

The WebSocket endpoint is /realtime/ws on the other port.
"""
_SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; connect-src 'self' ws: wss:; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
"""Allow only the console's own files, and no framing by other pages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerInfo:
    """What the console needs to know before it connects."""

    port: int
    """Port of the WebSocket."""
    secure: bool = False
    databases: tuple[str, ...] = ()


async def front_page(request: Request) -> Response:
    """Return the console to browsers, and a plain-text index to other clients."""
    if "text/html" in request.headers.get("accept", ""):
        return FileResponse(STATIC / "index.html", headers=_SECURITY_HEADERS)
    return PlainTextResponse(_INDEX_TEXT)


def info_response(info: ServerInfo, *, requires_auth: bool) -> Response:
    """Return server information. Database names are included only if no authentication is configured."""
    found = {"webSocketPort": info.port, "secure": info.secure, "tokens": requires_auth}
    return JSONResponse(found if requires_auth else {**found, "databases": info.databases})
