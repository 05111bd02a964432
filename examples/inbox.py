"""Point to point: everybody has an inbox, and reads it once.

Prints:

    Bob reads: hello
    Bob reads: how are you?
    messages left: 0
"""

import vedette

db = vedette.open(":memory:")
db.define("""
    node Actor { name: String }
    node Message { content: String, sent_at: Timestamp = now() }
    edge inbox(recipient: Actor, message: Message)

    policy watching: ON META SPAWN(_Watch) ALLOW IF true
    policy people: ON MATCH(a: Actor) ALLOW IF true
    policy writing: ON SPAWN(m: Message) ALLOW IF true
    policy sending: ON LINK(inbox) ALLOW IF true
    policy delivered: ON MATCH(inbox) ALLOW IF true
    policy reading: ON MATCH(m: Message) | KILL(m: Message) ALLOW IF EXISTS(inbox(current_actor(), m))
""")
with db.session() as system:
    actors = {}
    for name in ("Ann", "Bob"):
        actors[name] = system.execute("SPAWN a: Actor { name = $n } RETURNING id", n=name).rows[0][0]

ann, bob = db.session(actor=actors["Ann"]), db.session(actor=actors["Bob"])


def send(sender: vedette.Session, to: str, content: str) -> None:
    """Create the message and its address in one commit, so that every message has a reader."""
    sender.run(
        "BEGIN; SPAWN m: Message { content = $content }; LINK inbox(#$to, m); COMMIT", content=content, to=to
    )


send(ann, actors["Bob"], "hello")
send(ann, actors["Bob"], "how are you?")

mine = (
    "WATCH m: Message, inbox(#self, m) [mode: consume, ordering: attribute(m.sent_at ASC)] RETURN m.content"
)
for message in bob.consume(mine, timeout=0):
    with message:
        print("Bob reads:", message.match["m.content"])

with db.session() as system:
    print("messages left:", system.execute("MATCH m: Message RETURN COUNT(*)").rows[0][0])
db.close()
