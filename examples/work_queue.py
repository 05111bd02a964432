"""A work queue: several workers, the most urgent job first, each job once; what fails for good is kept.

Prints:

    done: 19
    failed for good: job 13 after 3 attempts: ValueError: 13 is unlucky
"""

import json
import logging
from concurrent.futures import ThreadPoolExecutor

import vedette

logging.getLogger("vedette").setLevel(logging.ERROR)  # failed attempts are warnings

db = vedette.open(":memory:")
db.define("""
    node Job { number: Int, priority: Int, created_at: Timestamp = now() }
    node Done { number: Int [unique] }
""")
QUEUE = """
    WATCH j: Job
      [mode: consume, group: "workers", ordering: attribute(j.priority DESC, j.created_at ASC), max_redeliveries: 2]
    RETURN j.number
"""


def work(number: int) -> None:
    if number == 13:
        raise ValueError("13 is unlucky")


def worker(_: int) -> None:
    """The result and the acknowledgement are committed together: each job leaves exactly one `Done`."""
    with db.session() as s:
        for job in s.consume(QUEUE, prefetch=4, timeout=0.5):
            with job:
                work(job.match["j.number"])
                s.execute("BEGIN")
                s.execute("SPAWN d: Done { number = $n }", n=job.match["j.number"])
                job.ack()
                s.execute("COMMIT")


with db.session() as s:
    for number in range(20):
        s.execute("SPAWN j: Job { number = $n, priority = $p }", n=number, p=number % 3)
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(worker, range(3)))
    print("done:", s.execute("MATCH d: Done RETURN COUNT(*)").rows[0][0])
    letters = s.execute("MATCH l: _DeadLetter RETURN l.original_match, l.delivery_attempts, l.cause")
    for match, attempts, cause in letters.rows:
        print(f"failed for good: job {json.loads(match)['j.number']} after {attempts} attempts: {cause}")
db.close()
