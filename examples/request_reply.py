"""Request and reply: a service answers each request once; a client waits for its own reply.

Prints:

    get user 123 -> Ada
    get user 456 -> unknown
"""

from threading import Thread

import vedette

db = vedette.open(":memory:")
db.define("""
    node Actor { name: String }
    node Request { payload: String, correlation_id: String, reply_to: Actor }
    node Response { payload: String, correlation_id: String }
    edge request_to(req: Request, service: Actor)
    edge response_to(resp: Response, requester: Actor)
""")
with db.session() as system:
    system.run('SPAWN users: Actor { name = "users" }; SPAWN client: Actor { name = "client" }')
    users_id, client_id = system.bindings["users"], system.bindings["client"]

USERS = {"get user 123": "Ada"}
REQUESTS = """
    WATCH r: Request, request_to(r, #self) [mode: consume]
    RETURN r.payload, r.correlation_id, r.reply_to
"""


def serve() -> None:
    """The reply and the acknowledgement are one commit: a crash in between answers nothing, and the request stays."""
    with db.session(actor=users_id) as s:
        for request in s.consume(REQUESTS, prefetch=1):
            if request.match["r.payload"] == "stop":
                request.ack()
                break
            with request:
                s.execute("BEGIN")
                s.execute(
                    "SPAWN resp: Response { payload = $answer, correlation_id = $id }",
                    answer=USERS.get(request.match["r.payload"], "unknown"),
                    id=request.match["r.correlation_id"],
                )
                s.execute("LINK response_to(#resp, #$client)", client=request.match["r.reply_to"])
                request.ack()
                s.execute("COMMIT")


def send(s: vedette.Session, question: str, correlation_id: str) -> None:
    s.run(
        """
        BEGIN;
        SPAWN req: Request { payload = $question, correlation_id = $id, reply_to = #self };
        LINK request_to(req, #$service);
        COMMIT
        """,
        question=question,
        id=correlation_id,
        service=users_id,
    )


def ask(s: vedette.Session, question: str, correlation_id: str) -> str:
    send(s, question, correlation_id)
    replies = s.consume(
        "WATCH r: Response, response_to(r, #self) WHERE r.correlation_id = $id RETURN r.payload",
        {"id": correlation_id},
        timeout=30,
    )
    for reply in replies:
        with reply:
            return str(reply.match["r.payload"])
    raise TimeoutError(f"no answer to: {question}")


service = Thread(target=serve, daemon=True)
service.start()
with db.session(actor=client_id) as client:
    for number, question in enumerate(("get user 123", "get user 456")):
        print(question, "->", ask(client, question, f"corr_{number}"))
    send(client, "stop", "")
service.join()
db.close()
