"""The contract, over Delta tables on the local disk."""

from pathlib import Path

import pytest

from belog.storage.creation import now_us
from belog.storage.delta import DeltaLog
from belog.storage.testing import Clock, LogContract, MakeLog


class TestDelta(LogContract):
    takes_clock = True

    @pytest.fixture
    def make_log(self, tmp_path: Path) -> MakeLog:
        def make(clock: Clock | None = None) -> DeltaLog:
            return DeltaLog(tmp_path / "a log ü", clock=clock or now_us)

        return make

    @pytest.fixture
    def log_uri(self, tmp_path: Path) -> str:
        return f"delta://{tmp_path}/a log ü"
