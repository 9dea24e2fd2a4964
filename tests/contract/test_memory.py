"""The contract, over a log in memory."""

import pytest

from belog.schemas.errors import InvalidUri
from belog.storage.creation import now_us
from belog.storage.memory import MemoryLog, from_uri
from belog.storage.testing import Clock, LogContract, MakeLog


class TestMemory(LogContract):
    takes_clock = True

    @pytest.fixture
    def make_log(self) -> MakeLog:
        def make(clock: Clock | None = None) -> MemoryLog:
            return MemoryLog(clock=clock or now_us)

        return make


def test_uri() -> None:
    assert from_uri("memory:").name == "memory:"
    with pytest.raises(InvalidUri):
        from_uri("memory:somewhere")
