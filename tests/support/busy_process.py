"""A process that writes to the tables: `python busy_process.py FILE VERB COUNT`, one line of output per step."""

from __future__ import annotations

import sys
from pathlib import Path

from vedette.clock import SystemClock
from vedette.handshake.failures import Failure, FailureKind
from vedette.handshake.tables import HandshakeTables


def main() -> None:
    file, verb, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    clock = SystemClock()
    with HandshakeTables(file) as tables:
        for number in range(count):
            if verb == "fail":
                failure = Failure(
                    path=f"/w/{number}", error_type="E", message="x", at=clock.now(), kind=FailureKind.DATA
                )
                print(tables.record_error("w", failure).health.consecutive_errors, flush=True)
            elif verb == "take":
                print(int(tables.system_state.request_capacity(sys.argv[4], 1, 0).granted), flush=True)
            elif verb == "wait":  # one step for every input line
                sys.stdin.readline()
                print(tables.refresh_watch("w").health.consecutive_errors, flush=True)


main()
