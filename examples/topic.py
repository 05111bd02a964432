"""Publish and subscribe: every reader of a topic sees every publication, also one that was away.

Prints:

    Ann sees: it works
    Bob sees: it works
    Bob sees: and it still does
    Ann comes back and sees: and it still does
"""

import vedette

db = vedette.open(":memory:")
db.define("""
    node Topic { name: String }
    node Publication { content: String, published_at: Timestamp = now() }
    edge published(topic: Topic, pub: Publication)
""")
publisher = db.session()
publisher.execute('SPAWN news: Topic { name = "news" }')
topic = publisher.bindings["news"]


def publish(content: str) -> None:
    publisher.run(
        "BEGIN; SPAWN p: Publication { content = $content }; LINK published(#news, p); COMMIT",
        content=content,
    )


ann, bob = db.session(), db.session()
hers = ann.watch(
    "hers = WATCH p: Publication, published(#$topic, p) [initial: none, delivery: reliable] RETURN p.content",
    topic=topic,
)
his = bob.watch("WATCH p: Publication, published(#$topic, p) [initial: none] RETURN p.content", topic=topic)

publish("it works")
for name, reader in (("Ann", hers), ("Bob", his)):
    for event in reader.poll():
        print(name, "sees:", event.match["p.content"])
        if reader is hers:
            reader.ack(event)

ann.close()
publish("and it still does")
print("Bob sees:", his.poll()[0].match["p.content"])

again = db.session().attach("hers")
print("Ann comes back and sees:", again.poll()[0].match["p.content"])
db.close()
