"""Total order: one consumer, one message at a time. A failure blocks all later messages until it is fixed.

Prints:

    1
    2 failed
    2
    3
"""

import logging

import vedette

logging.getLogger("vedette").setLevel(logging.ERROR)  # failed attempts are warnings

db = vedette.open(":memory:")
db.define("node Entry { n: Int }")
with db.session() as s:
    for n in (2, 3, 1):
        s.execute("SPAWN e: Entry { n = $n }", n=n)
    for entry in s.consume("WATCH e: Entry [buffer: 1, ordering: attribute(e.n)] RETURN e.n", timeout=0):
        with entry:
            if entry.match["e.n"] == 2 and entry.attempt == 1:
                print("2 failed")
                raise ConnectionError
            print(entry.match["e.n"])
db.close()
