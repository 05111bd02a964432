"""Close codes tell a client whether to reconnect."""

from __future__ import annotations

import pytest

from vedette.gateway.wire.close_codes import CloseCode, may_reconnect, needs_credentials


@pytest.mark.parametrize(
    ("code", "reconnect", "credentials"),
    [
        (CloseCode.NORMAL, True, False),
        (CloseCode.GOING_AWAY, True, False),
        (1006, True, False),
        (CloseCode.UNSUPPORTED, False, False),
        (CloseCode.TOO_BIG, False, False),
        (CloseCode.INTERNAL, True, False),
        (CloseCode.TRY_LATER, True, False),
        (CloseCode.DRAINING, True, False),
        (CloseCode.ENGINE_LOST, True, False),
        (CloseCode.AUTH_TIMEOUT, False, True),
        (CloseCode.AUTH_EXPIRED, False, True),
        (CloseCode.AUTH_REFUSED, False, True),
        (4250, False, False),
    ],
)
def test_a_code_says_what_to_do(code: int, reconnect: bool, credentials: bool):
    assert (may_reconnect(code), needs_credentials(code)) == (reconnect, credentials)
