"""The contract of `EventLog` as a test suite, for every backend there is or will be.

A backend's test file says where its logs are, and no more::

    class TestMyLog(LogContract):
        @pytest.fixture
        def make_log(self, tmp_path):
            return lambda clock=None: MyLog(tmp_path / "log")

        @pytest.fixture
        def log_uri(self, tmp_path):
            return f"mylog:{tmp_path}/log"

The suite asks `capabilities` what a backend can do. Where it cannot, the suite checks that it says
so; no test is passed over. It is for logs that can be read. It needs pytest, and nothing of this
repository's own tests.
"""

from belog.storage.testing_append import AppendContract
from belog.storage.testing_base import Clock, LogOpener, MakeLog
from belog.storage.testing_copy import CopyContract
from belog.storage.testing_follow import FollowContract
from belog.storage.testing_life import LifeContract
from belog.storage.testing_read import ReadContract
from belog.storage.testing_vacuum import VacuumContract

__all__ = ["Clock", "LogContract", "LogOpener", "MakeLog"]


class LogContract(
    LifeContract, AppendContract, ReadContract, FollowContract, CopyContract, VacuumContract
):
    """Everything that a log promises. Derive `Test…` from it and give the fixtures."""
