"""The contract on PostgreSQL."""

import pytest

from belog.storage.postgres import PostgresLog
from belog.storage.testing import LogContract, MakeLog
from tests.servers import Postgres

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


class TestPostgresLog(LogContract):
    @pytest.fixture
    def log_uri(self, postgres_server: Postgres, postgres_schema: str) -> str:
        return f"{postgres_server.uri}?schema={postgres_schema}"

    @pytest.fixture
    def make_log(self, log_uri: str) -> MakeLog:
        return lambda clock=None: PostgresLog(log_uri)  # noqa: ARG005 - the server has the clock
