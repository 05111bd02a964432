"""Classification of failures, their fault domain and retry."""

from __future__ import annotations

import pytest

from tests.support.handshake_records import failure
from vedette.handshake.failures import FailureKind, FaultDomain, classify_failure


@pytest.mark.parametrize(
    ("error_type", "message", "kind"),
    [
        ("FileNotFoundError", "[Errno 2] No such file or directory: 'x'", FailureKind.GONE),
        ("PermissionError", "[Errno 13] Permission denied", FailureKind.PERMISSION),
        ("ConnectionRefusedError", "refused", FailureKind.NETWORK),
        ("TimeoutError", "timed out", FailureKind.NETWORK),
        ("OSError", "Device or resource busy", FailureKind.RESOURCE),
        ("ValueError", "corrupt header", FailureKind.DATA),
        ("KeyError", "'x'", FailureKind.UNKNOWN),
    ],
)
def test_classify_failure(error_type: str, message: str, kind: FailureKind) -> None:
    assert classify_failure(error_type, message) is kind


def test_fault_domain_and_retry_by_kind() -> None:
    table = {
        kind: (failure(kind=kind).policy.fault_domain, failure(kind=kind).policy.retry)
        for kind in FailureKind
    }
    assert table == {
        FailureKind.GONE: (FaultDomain.NONE, False),
        FailureKind.PERMISSION: (FaultDomain.WATCH, True),
        FailureKind.NETWORK: (FaultDomain.WATCH, True),
        FailureKind.RESOURCE: (FaultDomain.WATCH, True),
        FailureKind.DATA: (FaultDomain.WATCH, False),
        FailureKind.SINK: (FaultDomain.SINK, True),
        FailureKind.UNKNOWN: (FaultDomain.WATCH, True),
    }
