"""The front page: the console for browsers, an index for other clients."""

from __future__ import annotations

import asyncio
import json

from starlette.requests import Request
from starlette.responses import FileResponse

from vedette.console.page import STATIC, ServerInfo, front_page, info_response


def test_a_browser_gets_the_console_and_other_clients_an_index():
    browser = Request({"type": "http", "headers": [(b"accept", b"text/html,*/*")]})
    page = asyncio.run(front_page(browser))
    assert isinstance(page, FileResponse)
    assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
    index = asyncio.run(front_page(Request({"type": "http", "headers": []})))
    assert b"/v1/databases/{database}/execute" in bytes(index.body)
    assert (STATIC / "index.html").is_file()


def test_database_names_are_shown_only_without_authentication():
    info = ServerInfo(port=7707, databases=("shop",))
    open_server = json.loads(bytes(info_response(info, requires_auth=False).body))
    assert open_server == {"webSocketPort": 7707, "secure": False, "tokens": False, "databases": ["shop"]}
    assert "databases" not in json.loads(bytes(info_response(info, requires_auth=True).body))
