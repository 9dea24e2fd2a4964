"""The disk below a PostgreSQL server is full: an error, no half event, and on it goes with room."""

import os
import pwd
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from belog.schemas.errors import BelogError, OutcomeUnknown, Unavailable
from belog.storage import postgres_client
from belog.storage.postgres import PostgresLog
from tests.integration.log_workers import ids_of
from tests.integration.postgres_workers import opened
from tests.servers import Postgres, eventually
from tests.servers.runner import LocalRunner
from tests.writers import fill_up, observed

DISK_MB = 80
"""An empty cluster takes 55 MB."""
BALLAST_CHUNK_BYTES = 1 << 16

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(180),
    # Only root can mount a small disk.
    pytest.mark.parametrize("small_server", [DISK_MB] if os.geteuid() == 0 else [], indirect=True),
]


@pytest.fixture
def small_server(request: pytest.FixtureRequest) -> Iterator[tuple[Postgres, Path]]:
    """A server whose whole cluster is on a small disk, and the ballast that fills it."""
    server = Postgres.create(provider="local")
    assert isinstance(server.runner, LocalRunner)
    folder, owner = server.runner.dir, pwd.getpwnam("postgres").pw_uid
    options = f"size={request.param}m,uid={owner},mode=700"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=True)
    try:
        with server:
            yield server, folder / "ballast"
            server.kill()
    finally:
        subprocess.run(["umount", folder], check=True)
        folder.rmdir()


def fill_disk(ballast: Path) -> None:
    with ballast.open("ab", buffering=0) as file:
        size = BALLAST_CHUNK_BYTES
        while size:
            try:
                file.write(bytes(size))
            except OSError:
                size //= 2


def append_some(log: PostgresLog, n: int) -> list[tuple[bytes, int]]:
    receipts = [log.append(observed(n + k)) for k in range(10)]
    return [(receipt.event_id, receipt.index) for receipt in receipts]


def test_no_room_for_the_table(small_server: tuple[Postgres, Path]) -> None:
    server, ballast = small_server
    with opened(server.uri) as log:
        acknowledged = append_some(log, 0)
        fill_disk(ballast)
        pairs = fill_up(log, 1_000)
        assert log.next_position() == 11 + 2 * pairs
        with pytest.raises(Unavailable, match="No space left"):
            log.append_batch([observed(n) for n in range(5_000, 5_500)])
        assert log.read(0).events[-1].index == 10 + 2 * pairs
        ballast.unlink()
        acknowledged += append_some(log, 9_000)
        assert set(acknowledged) <= set(ids_of(log))


def use_up_segments(connection: psycopg.Connection[tuple[object, ...]]) -> None:
    for _ in range(10):
        connection.execute("SELECT pg_logical_emit_message(true, 'test', ''), pg_switch_wal()")


def test_no_room_for_the_write_ahead_log(
    small_server: tuple[Postgres, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_client, "RECONNECT_S", 1.0)
    server, ballast = small_server
    with opened(server.uri) as log:
        acknowledged = append_some(log, 0)
        fill_disk(ballast)
        with server.connect() as connection, pytest.raises(psycopg.OperationalError):
            use_up_segments(connection)
        eventually(lambda: server.runner.why_not_running() is not None, "the server gave up")
        with pytest.raises(BelogError) as raised:
            log.append(observed(5_000))
        assert raised.value.retriable or isinstance(raised.value, OutcomeUnknown)
        ballast.unlink()
        server.start()
        acknowledged += append_some(log, 9_000)
        assert set(acknowledged) <= set(ids_of(log))
