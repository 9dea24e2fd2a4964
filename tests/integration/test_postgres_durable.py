"""What a crash of the PostgreSQL server takes, and that nobody was told of it before.

An append may commit before it is durable (`belog.storage.postgres_durable`). Here a writer dies
between the two steps, and the server right after somebody looked.
"""

from collections.abc import Callable

import pytest
from psycopg.sql import SQL, Identifier, Literal

from belog.schemas.envelope import encode_event
from belog.schemas.errors import IndexConflict
from belog.schemas.filters import EventFilter
from belog.storage import EventLog
from belog.storage.postgres import PostgresLog
from belog.storage.postgres_client import connect
from belog.storage.postgres_rows import keys_of
from belog.storage.postgres_uri import parse_uri
from belog.storage.postgres_values import WordArray
from tests.integration.log_workers import ids_of, observed
from tests.integration.postgres_workers import opened
from tests.servers import Postgres

pytestmark = [pytest.mark.integration, pytest.mark.chaos, pytest.mark.timeout(180)]

SETTINGS = {
    # Nobody but who has to may write what is in the server's memory.
    "wal_writer_delay": "10s",
    "bgwriter_delay": "10s",
    "autovacuum": "off",
}


def append_undurably(uri: str, n: int) -> None:
    """Append as a writer that dies between its commit and making that durable."""
    event, target = observed(n), parse_uri(uri)
    with connect(target) as connection:
        rows = connection.execute(
            target.sql(
                "SELECT ({schema}.belog_append(1, 'channel', 0, true, '{1}',"
                " '{NULL}', '{NULL}', '{1}', '{0}', '{1}', '{0}', ARRAY[length(%b)], %b, %b))[1]"
            ),
            [encode_event(event), WordArray(keys_of([event])), encode_event(event)],
        ).fetchall()
    assert rows == [(1,)]


def refused(log: PostgresLog, n: int) -> None:
    with pytest.raises(IndexConflict):
        log.append_unless_touched([observed(n)], seen_idx=1)


def refused_at(log: PostgresLog, n: int) -> None:
    with pytest.raises(IndexConflict):
        log.append(observed(1000 + n), at=1)


LOOKS: dict[str, Callable[[PostgresLog, int], object]] = {
    "scan": lambda log, _: log.scan(0),
    "read": lambda log, _: log.read(0),
    "read with a filter": lambda log, n: log.read(
        0, EventFilter(partition_refs=(observed(n).subject_id,))
    ),
    "get": lambda log, n: log.get(n + 1),
    "get by id": lambda log, n: log.get_by_id(observed(n).event_id),
    "next position": lambda log, _: log.next_position(),
    "end": lambda log, _: log.end(),
    "statistics": lambda log, _: log.statistics(),
    "refused, touched": refused,
    "refused, not at the end": refused_at,
    "appended after it": lambda log, n: log.append(observed(1000 + n)),
}


def events_of(log: EventLog) -> set[bytes]:
    return {event_id for event_id, _ in ids_of(log)}


def test_what_somebody_saw_outlives_the_server(new_postgres: Callable[..., Postgres]) -> None:
    server = new_postgres()
    with server.connect() as connection:
        for name, value in SETTINGS.items():
            change = SQL("ALTER SYSTEM SET {} = {}").format(Identifier(name), Literal(value))
            connection.execute(change)
    server.stop()
    server.start()
    with opened(server.uri) as log:
        log.append(observed(0))
    lost = 100
    append_undurably(server.uri, lost)
    server.restart()
    with opened(server.uri) as log:
        assert observed(lost).event_id not in events_of(log), "the crash takes nothing"
    for n, (name, look) in enumerate(LOOKS.items(), start=1):
        with opened(server.uri) as log:
            log.next_position()
            append_undurably(server.uri, n)
            look(log, n)
            server.kill()
        server.start()
        with opened(server.uri) as log:
            assert observed(n).event_id in events_of(log), name


def test_a_role_that_only_reads_waits_too(new_postgres: Callable[..., Postgres]) -> None:
    server = new_postgres()
    with opened(server.uri) as log:
        log.append(observed(0))
    with server.connect() as connection:
        connection.execute("ALTER SYSTEM SET wal_writer_delay = '10s'")
        connection.execute("SELECT pg_reload_conf()")
        connection.execute("CREATE ROLE watcher LOGIN")
        connection.execute("GRANT USAGE ON SCHEMA belog TO watcher")
        connection.execute("GRANT SELECT ON ALL TABLES IN SCHEMA belog TO watcher")
        connection.execute("ALTER ROLE watcher SET default_transaction_read_only = on")
    with opened(server.uri.replace("postgres@", "watcher@")) as log:
        append_undurably(server.uri, 1)
        assert log.next_position() == 3
        server.kill()
    server.start()
    with opened(server.uri) as log:
        assert observed(1).event_id in events_of(log)
