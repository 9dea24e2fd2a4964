"""The contract, over folders of segment files, small ones so that every test crosses some."""

import subprocess
import sys
from pathlib import Path

import pytest

from belog.schemas.errors import Unavailable
from belog.storage.creation import now_us
from belog.storage.file import FileLog
from belog.storage.interface import EventLog
from belog.storage.testing import Clock, LogContract, LogOpener, MakeLog
from belog.storage.testing_base import WAIT_S, accepted
from belog.storage.testing_events import observed
from tests.writers import Follower

WRITER = [sys.executable, "-m", "belog.storage.testing_writer"]
WRITTEN = 200


class TestFile(LogContract):
    takes_clock = True

    @pytest.fixture
    def make_log(self, tmp_path: Path) -> MakeLog:
        def make(clock: Clock | None = None) -> FileLog:
            return FileLog(tmp_path / "a log ü", clock=clock or now_us, segment_bytes_max=10_000)

        return make

    @pytest.fixture
    def log_uri(self, tmp_path: Path) -> str:
        return f"file://{tmp_path}/a log ü"

    # What `single_writer` says: the same with one writer, and that the others are told so.

    def test_two_objects_over_one_log(self, open_log: LogOpener) -> None:
        first, second = open_log(), open_log()
        assert first.capabilities.single_writer
        for n in range(20):
            assert first.append(observed(n)).index == n + 1
            assert second.next_position() == n + 2
            stored = second.get(n + 1)
            assert stored is not None
            assert stored.event == observed(n)
        with pytest.raises(Unavailable, match=r"process \d+ writes"):
            second.append(observed(50))
        assert first.end() == second.end()
        first.close()
        assert second.append(observed(50)).index == 21

    def test_while_another_process_writes(
        self, log: EventLog, request: pytest.FixtureRequest
    ) -> None:
        uri: str = request.getfixturevalue("log_uri")
        follower = Follower(log)
        command = [*WRITER, uri, "5000", str(WRITTEN)]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        assert output.split() == [str(n) for n in range(1, WRITTEN + 1)]
        assert log.wait(WRITTEN, WAIT_S)
        assert [s.event.event_id for s in accepted(log)][1:] == [
            observed(n).event_id for n in range(5000, 5000 + WRITTEN)
        ]
        follower.until(WRITTEN + 1)
        assert follower.indices == list(range(WRITTEN + 1))
