from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.gateway_wire import Wire


@pytest.fixture
def wire() -> Iterator[Wire]:
    wire = Wire()
    yield wire
    wire.close()
