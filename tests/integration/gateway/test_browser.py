"""The browser client in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.support.browser import CHROMIUM, Browser
from tests.support.gateway_server import Serving

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium: scripts/ensure-test-services installs it"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as browser:
        yield browser


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Serving]:
    with Serving(tmp_path / "data") as server:
        server.vedette.define("node Task { n: Int = 0 }")
        yield server


def test_a_browser_websocket_works_without_the_client_library(browser: Browser, server: Serving):
    script = f"""
        const socket = new WebSocket("{server.url}/realtime/ws");
        const heard = [];
        const enough = new Promise((resolve) => {{
            socket.onmessage = ({{ data }}) => {{ heard.push(JSON.parse(data)); if (heard.length === 4) resolve(); }};
        }});
        await new Promise((resolve) => (socket.onopen = resolve));
        const say = (type, id, payload) => socket.send(JSON.stringify({{ type, id, payload }}));
        say("auth", "1", {{ token: "", database: "default" }});
        say("subscribe", "s", {{ query: {{ collection: "Task", filters: [] }}, includeData: true }});
        say("execute", "2", {{ statement: "SPAWN t: Task {{ n = 7 }}" }});
        await enough;
        const event = heard.find((message) => message.type === "event");
        return [heard.map((message) => message.type), event.payload.delta.document.n];
    """
    types, n = browser.run(f"{server.web}/health", script)
    assert types[:2] == ["auth_ack", "subscribe_ack"]
    assert sorted(types[2:]) == ["event", "result"]  # the reply and the event arrive in either order
    assert n == 7


def test_the_browser_client_watches_and_executes(browser: Browser, server: Serving):
    script = f"""
        const {{ connect }} = await import("{server.web}/static/vedette.js");
        const db = await connect("{server.url}");
        const watch = db.watch("WATCH t: Task WHERE t.n > $low RETURN t.n", {{ low: 0 }});
        const documents = db.documents("Task", {{ filter: "doc.n > 1" }});
        const first = await watch.next();
        await documents.next();
        await db.execute("SPAWN t: Task {{ n = $n }}", {{ n: 5 }});
        const second = await watch.next();
        const entered = await documents.next();
        let code;
        try {{ await db.execute("MATCH x: Nothing RETURN x"); }} catch (error) {{ code = error.code; }}
        let refused;
        try {{ await db.watch("WATCH x: Nothing RETURN x").next(); }} catch (error) {{ refused = error.code; }}
        watch.close();
        const end = await watch.next();
        db.close();
        return [first.type, second.match["t.n"], entered.match.n, code, refused, end];
    """
    assert browser.run(f"{server.web}/health", script) == ["initial", 5, 5, "E2001", "E2001", None]


@pytest.mark.parametrize("options", ["", "[delivery: reliable]"])
def test_the_browser_client_resumes_after_a_broken_connection(
    browser: Browser, server: Serving, options: str
):
    """The server breaks the connection repeatedly; every number arrives once, in order."""
    script = f"""
        const {{ connect }} = await import("{server.web}/static/vedette.js");
        const db = await connect("{server.url}");
        const watch = db.watch("WATCH t: Task {options} RETURN t.n");
        const seen = [(await watch.next()).type];
        const writer = await connect("{server.url}", {{ database: "default" }});
        globalThis.ready = true;
        while (seen.length < 41) seen.push((await watch.next()).match["t.n"]);
        const reconnects = db.reconnects;
        db.close(); writer.close();
        return [reconnects > 0, seen];
    """

    def trouble() -> None:
        until_somebody_listens(server)
        with server.vedette.session() as session:
            for n in range(40):
                session.execute("SPAWN t: Task { n = $n }", n=n)
                if n % 10 == 5:
                    server.on_loop(lambda: cut(server))

    thread = Thread(target=trouble)
    thread.start()
    found = browser.run(f"{server.web}/health", script)
    thread.join()
    assert found == [True, ["initial", *range(40)]]


def test_the_console_shows_a_watch_as_it_changes(browser: Browser, server: Serving):
    """What a person would do: open the page, run statements, follow a watch."""
    script = """
        const until = async (found) => { while (!found()) await new Promise((done) => setTimeout(done, 10)); };
        const here = document.getElementById("status");
        await until(() => here.dataset.state === "here");
        const seen = [here.textContent];
        const texts = (name) => [...document.querySelectorAll(`article:first-child ${name}`)].map((e) => e.textContent);
        const enter = (text) => {
            document.getElementById("text").value = text;
            document.getElementById("statement").requestSubmit();
        };
        enter("SPAWN t: Task { n = 1 }");
        await until(() => texts("p").length);
        seen.push(texts("p"));
        enter("MATCH x: Nothing RETURN x");
        await until(() => texts(".error").length);
        seen.push(texts(".error")[0].includes("E2001"));
        enter("WATCH t: Task RETURN t.n");
        await until(() => texts("td").length === 1);
        seen.push(texts("td"));
        const other = await (await fetch("/v1/databases/default/execute", {
            method: "POST", headers: { "Content-Type": "application/json" },
            body: JSON.stringify({ statement: "SPAWN t: Task { n = 2 }; SPAWN t: Task { n = 2 }", script: true }),
        })).json();
        await until(() => texts("td").length === 3);
        seen.push(texts("td").sort());
        await fetch("/v1/databases/default/execute", {
            method: "POST", headers: { "Content-Type": "application/json" },
            body: JSON.stringify({ statement: "MATCH t: Task WHERE t.n = 2 SET t.n = 3" }),
        });
        await until(() => texts("td").sort().join() === "1,3,3");
        document.querySelector("article:first-child button").click();
        seen.push(document.querySelectorAll("article").length);
        return seen;
    """
    found = browser.run(f"{server.web}/", script)
    assert found == ["connected to default", ["1 created"], True, ["1"], ["1", "2", "2"], 2]


def cut(server: Serving) -> None:
    for socket in list(server.service.server.sockets.connected):
        socket.abort()


def until_somebody_listens(server: Serving) -> None:
    while not server.on_loop(lambda: server.service.router.subscriptions):
        pass


def test_the_browser_client_reports_a_gap_after_a_watch_ended_with_its_connection(
    browser: Browser, server: Serving
):
    """Also before the first event; later events are complete."""
    script = f"""
        const {{ connect }} = await import("{server.web}/static/vedette.js");
        const db = await connect("{server.url}");
        const watch = db.watch("WATCH t: Task [initial: none] RETURN t.n", {{}}, {{ exclusive: true }});
        const {{ type, reason }} = await watch.next();
        await db.execute("SPAWN t: Task {{ n = 8 }}");
        const number = (await watch.next()).match["t.n"];
        db.close();
        return [type, reason, number];
    """

    def trouble() -> None:
        until_somebody_listens(server)
        server.on_loop(lambda: cut(server))

    thread = Thread(target=trouble)
    thread.start()
    found = browser.run(f"{server.web}/health", script)
    thread.join()
    assert found == ["resync", "connection", 8]


def test_a_page_of_an_allowed_origin_can_connect(browser: Browser, server: Serving, tmp_path: Path):
    """As docs/tutorial/clients.md has it: a module, events and statements from a page that we do not serve."""
    (tmp_path / "page.html").write_text("<title>mine</title>")
    serving = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    serving.log_message = lambda *_: None  # type: ignore[attr-defined]
    with ThreadingHTTPServer(("127.0.0.1", 0), serving) as pages:
        Thread(target=pages.serve_forever, daemon=True).start()
        script = f"""
            const {{ connect }} = await import("{server.web}/static/vedette.js");
            const db = await connect("{server.url}");
            const made = await db.execute("SPAWN t: Task {{ n = 3 }}");
            const answer = await fetch("{server.web}/v1/databases/default/execute", {{
                method: "POST", headers: {{ "Content-Type": "application/json" }},
                body: JSON.stringify({{ statement: "MATCH t: Task RETURN t.n" }}),
            }});
            const first = await new Promise((resolve) => {{
                const stream = new EventSource("{server.web}/realtime/sse?database=default&collection=Task");
                stream.onmessage = ({{ data }}) => {{ stream.close(); resolve(JSON.parse(data).type); }};
            }});
            return [made.created, (await answer.json()).rows, first];
        """
        found = browser.run(f"http://127.0.0.1:{pages.server_port}/page.html", script)
        pages.shutdown()
    assert found == [1, [[3]], "subscribe_ack"]
