"""A headless Chromium, controlled over the DevTools protocol."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from typing import Any
from urllib.request import urlopen

from websockets.sync.client import connect

__all__ = ["CHROMIUM", "Browser"]

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
_OPTIONS = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
    --disable-component-update --disable-sync --remote-debugging-port=0""".split()


class Browser:
    """`with Browser() as browser: browser.run(page, script)`."""

    def __enter__(self) -> Browser:
        assert CHROMIUM is not None
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self._process = subprocess.Popen(
            [CHROMIUM, *_OPTIONS, f"--user-data-dir={self._folder.name}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if line.startswith("DevTools listening on "):
                self._port = line.split(":")[2].split("/")[0]
                break
        else:
            raise AssertionError("Chromium did not start")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.communicate(timeout=60)
        self._folder.cleanup()

    def run(self, page: str, script: str) -> Any:
        """Open a page, run the body of an asynchronous function there, and return its value."""
        with urlopen(f"http://127.0.0.1:{self._port}/json") as answer:
            targets = json.loads(answer.read())
        target = next(each for each in targets if each["type"] == "page")
        with connect(target["webSocketDebuggerUrl"], max_size=None) as devtools:
            number = 0

            def ask(method: str, **params: Any) -> dict[str, Any]:
                nonlocal number
                number += 1
                devtools.send(json.dumps({"id": number, "method": method, "params": params}))
                while True:
                    message: dict[str, Any] = json.loads(devtools.recv(timeout=60))
                    if message.get("id") == number:
                        return message

            ask("Page.enable")
            ask("Page.navigate", url=page)
            place = "location.href + ' ' + document.readyState"
            while (there := ask("Runtime.evaluate", expression=place))["result"].get("result", {}).get(
                "value"
            ) != f"{page} complete":  # a load event could still belong to the blank page
                assert "error" not in there, there
            expression = f"(async () => {{ {script} }})()"
            found = ask("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
            result = found["result"]
            assert "exceptionDetails" not in result, result["exceptionDetails"]
            return result["result"].get("value")
