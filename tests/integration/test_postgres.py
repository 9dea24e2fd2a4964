"""The PostgreSQL log on a real server: what is particular to it."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import LiteralString
from urllib.parse import quote

import pytest
from psycopg.errors import DivisionByZero
from psycopg.sql import SQL, Identifier

from belog.schemas.envelope import encode_event
from belog.schemas.errors import (
    IndexConflict,
    InvalidConfiguration,
    InvalidUri,
    Misconfigured,
    NewerFormat,
    OutcomeUnknown,
    Unavailable,
    Unsupported,
)
from belog.schemas.filters import EventFilter
from belog.storage import open_log, postgres_client, postgres_notify
from belog.storage.interface import CopiedRecord
from belog.storage.postgres import PostgresLog
from belog.storage.postgres_client import connect
from belog.storage.postgres_schema import VERSION_NEWEST, steps, upgrade
from belog.storage.postgres_uri import parse_uri
from tests.integration.log_workers import observed
from tests.integration.postgres_workers import opened
from tests.servers import Postgres, eventually, free_port

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

CLEAR_ERROR_S = 10.0


@pytest.fixture
def uri(postgres_server: Postgres, postgres_schema: str) -> str:
    return f"{postgres_server.uri}?schema={postgres_schema}"


@pytest.fixture
def log(uri: str) -> Iterator[PostgresLog]:
    with opened(uri) as log:
        yield log


def relations(server: Postgres, schema: str) -> set[str]:
    with server.connect() as connection:
        rows = connection.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = %s::regnamespace", [f'"{schema}"']
        ).fetchall()
    return {row[0] for row in rows}


# --- opening


def test_wrong_password_is_said_without_it(new_postgres: Callable[..., Postgres]) -> None:
    secret, wrong = "p@ss:/w?r%d", "wr@ng%1"
    server = new_postgres(password=secret).start()
    with opened(server.uri) as log:
        assert log.append(observed(0)).index == 1
        assert quote(secret, safe="") not in log.name
        assert secret not in log.name
    start = monotonic()
    with PostgresLog(server.uri.replace(quote(secret, safe=""), quote(wrong, safe=""))) as log:
        with pytest.raises(InvalidConfiguration, match="password authentication failed") as raised:
            log.initialize()
        chain: BaseException | None = raised.value
        while chain is not None:
            assert wrong not in f"{chain!r} {chain}"
            chain = chain.__cause__ or chain.__context__
    assert monotonic() - start < CLEAR_ERROR_S


@pytest.mark.parametrize(
    "uri",
    [
        "postgresql://u:s3cret%zz@host/db",
        "postgresql://u:s3cret@host:port:1/db",
        "postgresql://u:s3cret@[host/db",
        "postgresql://u:s3cret@host/db?tabel=x",
        "postgresql://u:s3cret@host/db?schema=",
        f"postgresql://u:s3cret@host/db?log={'x' * 64}",
    ],
)
def test_malformed_uri_is_refused_without_its_secret(uri: str) -> None:
    with pytest.raises(InvalidUri) as raised:
        open_log(uri)
    assert "s3cret" not in f"{raised.value!r} {raised.value} {raised.value.__cause__!r}"


def test_unreachable_server_is_said_in_time() -> None:
    start = monotonic()
    with PostgresLog(f"postgresql://u:s3cret@127.0.0.1:{free_port()}/db") as log:
        with pytest.raises(Unavailable, match="refused") as raised:
            log.initialize()
        assert "s3cret" not in str(raised.value)
    # Packets to this network (RFC 5737) get no answer, or a quick one that there is no way.
    silent = "postgresql://u@192.0.2.1,192.0.2.2,192.0.2.3/db"
    with PostgresLog(silent) as log, pytest.raises(Unavailable):
        log.initialize()
    assert monotonic() - start < CLEAR_ERROR_S


def test_missing_database_and_role_are_said(postgres_server: Postgres) -> None:
    base, _, _ = postgres_server.uri.rpartition("/")
    for uri in (f"{base}/nowhere", postgres_server.uri.replace("postgres@", "nobody@")):
        with PostgresLog(uri) as log, pytest.raises(InvalidConfiguration, match="does not exist"):
            log.initialize()


def test_server_that_does_not_make_commits_durable(new_postgres: Callable[..., Postgres]) -> None:
    server = new_postgres().start()
    with server.connect() as connection:
        connection.execute("ALTER SYSTEM SET fsync = off")
        connection.execute("SELECT pg_reload_conf()")
        eventually(lambda: connection.execute("SHOW fsync").fetchone() == ("off",))
    with PostgresLog(server.uri) as log, pytest.raises(Misconfigured) as raised:
        log.initialize()
    assert raised.value.setting == "fsync"


def test_hosts_are_tried_in_order_and_a_socket_serves(
    postgres_server: Postgres, postgres_schema: str
) -> None:
    query = f"schema={postgres_schema}"
    port = postgres_server.port
    hosts = f"127.0.0.1:{free_port()},127.0.0.1:{port}"
    uri = postgres_server.uri.replace(f"127.0.0.1:{port}", hosts)
    with opened(f"{uri}?{query}") as log:
        assert hosts in log.name
        assert log.append(observed(0)).index == 1
    if postgres_server.provider == "local":
        with postgres_server.connect() as connection:
            row = connection.execute("SHOW unix_socket_directories").fetchone()
        folder = quote(row[0] if row else "", safe="")
        with opened(f"postgres://postgres@{folder}:{port}/postgres?{query}") as log:
            assert log.next_position() == 2
            assert folder in log.name


def test_names_of_any_characters(postgres_server: Postgres) -> None:
    name = "Stra\"nge {schema} 'näme' %s"
    uri = f"{postgres_server.uri}?schema={quote(name)}&log={quote(name)}"
    with opened(uri) as log:
        log.append(observed(0))
        assert log.read(0, EventFilter(actors=("writer-0",))).events[0].index == 1
    with postgres_server.connect() as connection:
        connection.execute(SQL("DROP SCHEMA {} CASCADE").format(Identifier(name)))


def test_role_that_only_owns_its_schema(postgres_server: Postgres, unique_name: str) -> None:
    role = Identifier(unique_name)
    with postgres_server.connect() as connection:
        connection.execute(SQL("CREATE ROLE {} LOGIN").format(role))
        connection.execute(SQL("CREATE SCHEMA {0} AUTHORIZATION {0}").format(role))
    uri = postgres_server.uri.replace("postgres@", f"{unique_name}@")
    with opened(f"{uri}?schema={unique_name}") as log:
        log.append_batch([observed(n) for n in range(10)])
        assert len(log.read(0, EventFilter(actors=("writer-0",))).events) == 10
        assert log.statistics().events == 11
    with (
        PostgresLog(f"{uri}?schema={unique_name}_2") as log,
        pytest.raises(Unsupported, match="permission denied"),
    ):
        log.initialize()
    with postgres_server.connect() as connection:
        connection.execute(SQL("DROP OWNED BY {0}").format(role))
        connection.execute(SQL("DROP ROLE {0}").format(role))


def test_role_that_only_reads(
    postgres_server: Postgres, postgres_schema: str, log: PostgresLog, uri: str, unique_name: str
) -> None:
    log.append_batch([observed(n) for n in range(3000)])
    role, schema = Identifier(unique_name), Identifier(postgres_schema)
    with postgres_server.connect() as connection:
        connection.execute(SQL("CREATE ROLE {} LOGIN").format(role))
        connection.execute(SQL("GRANT USAGE ON SCHEMA {} TO {}").format(schema, role))
        connection.execute(
            SQL("GRANT SELECT ON ALL TABLES IN SCHEMA {} TO {}").format(schema, role)
        )
    with opened(uri.replace("postgres@", f"{unique_name}@")) as reader:
        wanted = EventFilter(partition_refs=("data/0/2999",))
        assert [stored.index for stored in reader.read(0, wanted).events] == [3000]
        assert reader.statistics().events == 3001
        with pytest.raises(Unsupported, match="permission denied"):
            reader.append(observed(1, writer=1))
    assert log.next_position() == 3001
    with postgres_server.connect() as connection:
        connection.execute(SQL("DROP OWNED BY {0}").format(role))
        connection.execute(SQL("DROP ROLE {0}").format(role))


# --- the schema


@pytest.mark.parametrize("table", ["belog_records", "belog_versions", "belog_postings"])
def test_table_of_another_program_stays_as_it_is(
    postgres_server: Postgres, postgres_schema: str, uri: str, table: str
) -> None:
    with postgres_server.connect() as connection:
        path = Identifier(postgres_schema, table)
        connection.execute(SQL("CREATE TABLE {} (mine text)").format(path))
    before = relations(postgres_server, postgres_schema)
    with PostgresLog(uri) as log, pytest.raises(InvalidUri, match=f"{table} of another program"):
        log.initialize()
    assert relations(postgres_server, postgres_schema) == before


def test_newer_schema_is_left_alone(
    postgres_server: Postgres, postgres_schema: str, log: PostgresLog, uri: str
) -> None:
    log.append(observed(0))
    with postgres_server.connect() as connection:
        path = Identifier(postgres_schema, "belog_versions")
        connection.execute(SQL("INSERT INTO {} VALUES (%s)").format(path), [VERSION_NEWEST + 1])
    with PostgresLog(uri) as other:
        with pytest.raises(NewerFormat, match=f"version {VERSION_NEWEST + 1}"):
            other.identify()
        with pytest.raises(NewerFormat):
            other.initialize()
    assert log.next_position() == 2


def test_older_schema_is_upgraded_with_what_it_holds(uri: str) -> None:
    target = parse_uri(uri)
    event = observed(0)
    with connect(target) as connection:
        assert upgrade(connection, target, steps()[:1]) == 1
        with PostgresLog(uri) as empty:
            assert empty.identify() is None
        # A log as version 1 left it: with an event, and without an index.
        connection.execute(
            target.script(
                "INSERT INTO {schema}.belog_logs (name, log_id, instance, is_replica)"
                " VALUES ('main', gen_random_uuid(), 'here', false);"
                "INSERT INTO {schema}.belog_ends VALUES (1, 0, 0)"
            )
        )
        connection.execute(
            target.sql(
                "SELECT {schema}.belog_append(1, NULL, 0, '{1}', '{NULL}', '{NULL}', ARRAY[%s],"
                " ARRAY[%s], ARRAY['partition'], ARRAY[%s], ARRAY[%b])"
            ),
            [event.event_id, event.event_type, event.subject_id, encode_event(event)],
        )
    with opened(uri) as log:
        # What is from before concerns, for all that is known, everything.
        with pytest.raises(IndexConflict):
            log.append_unless_touched([observed(1)], seen_idx=0)
        assert log.append_unless_touched([observed(1)], seen_idx=1)[0].index == 1
        wanted = EventFilter(partition_refs=(event.subject_id,))
        assert [stored.event for stored in log.read(0, wanted).events] == [event]
    with connect(target) as connection:
        rows = connection.execute(
            target.script("SELECT version FROM {schema}.belog_versions ORDER BY version")
        ).fetchall()
        assert rows == [(version,) for version in range(1, VERSION_NEWEST + 1)]


def test_step_that_fails_leaves_nothing(
    postgres_server: Postgres, postgres_schema: str, uri: str
) -> None:
    target = parse_uri(uri)
    files = [*steps()[:1], (2, "CREATE TABLE {schema}.half (); SELECT 1 / 0")]
    with connect(target) as connection, pytest.raises(DivisionByZero):
        upgrade(connection, target, files)
    assert relations(postgres_server, postgres_schema) == set()
    with opened(uri) as log:
        assert log.append(observed(0)).index == 1


def test_many_open_a_new_log_at_once(uri: str) -> None:
    logs = [PostgresLog(uri) for _ in range(8)]
    with ThreadPoolExecutor(len(logs)) as pool:
        identities = set(pool.map(lambda log: log.initialize(), logs))
    assert len(identities) == 1
    assert logs[0].next_position() == 1
    for log in logs:
        log.close()


def test_two_logs_in_a_schema_and_two_schemas_in_a_database(uri: str) -> None:
    with (
        opened(uri) as one,
        opened(f"{uri}&log=other") as two,
        opened(uri.replace("schema=", "schema=x")) as three,
    ):
        logs = (one, two, three)
        for n, log in enumerate(logs, 1):
            log.append_batch([observed(k, writer=n) for k in range(n)])
            assert log.get_by_id(observed(0, writer=n).event_id) is not None
            assert log.get_by_id(observed(0, writer=n + 1).event_id) is None
        assert [log.next_position() for log in logs] == [2, 3, 4]
        assert [log.statistics().events for log in logs] == [2, 3, 4]
        for n, log in enumerate(logs, 1):
            found = log.read(0, EventFilter(partition_patterns=("data/**",))).events
            assert {stored.event.actor for stored in found} == {f"writer-{n}"}
        assert len({log.initialize().log_id for log in logs}) == 3
        with three._pool.connection() as connection:  # noqa: SLF001
            connection.execute(three._target.script("DROP SCHEMA {schema} CASCADE"))  # noqa: SLF001


# --- appending


def test_waiting_appends_of_a_process_share_a_commit(
    postgres_server: Postgres, postgres_schema: str, log: PostgresLog
) -> None:
    gate = threading.Barrier(8)

    def write(writer: int) -> list[int]:
        gate.wait()
        return [log.append(observed(n, writer=writer)).index for n in range(40)]

    with ThreadPoolExecutor(8) as pool:
        indices = sorted(index for told in pool.map(write, range(8)) for index in told)
    assert indices == list(range(1, 321))
    with postgres_server.connect() as connection:
        path = Identifier(postgres_schema, "belog_records")
        row = connection.execute(
            SQL("SELECT count(DISTINCT xmin::text) FROM {}").format(path)
        ).fetchone()
    assert row is not None
    assert row[0] < 200


def test_calls_of_one_group_see_each_other(log: PostgresLog) -> None:
    """Of 8 threads that append to one subject, judged at one index, one wins each round."""
    for round_ in range(5):
        seen = log.next_position()
        gate = threading.Barrier(8)

        def write(seen: int, gate: threading.Barrier = gate) -> int:
            event = observed(0, writer=3)
            gate.wait()
            try:
                return log.append_unless_touched([event], seen_idx=seen)[0].index
            except IndexConflict as conflict:
                return -conflict.next_idx

        with ThreadPoolExecutor(8) as pool:
            told = sorted(pool.map(write, [seen] * 8))
        assert told == [-seen - 1] * 7 + [seen]
        assert log.next_position() == round_ + 2


def test_commit_whose_answer_was_lost(
    postgres_server: Postgres, log: PostgresLog, uri: str
) -> None:
    target = parse_uri(uri)
    with ThreadPoolExecutor(1) as pool, connect(target) as holder, holder.transaction():
        holder.execute(target.script("SELECT * FROM {schema}.belog_ends FOR UPDATE"))
        told = pool.submit(log.append, observed(0))
        eventually(lambda: terminate(postgres_server, "wait_event_type = 'Lock'"))
        with pytest.raises(OutcomeUnknown) as raised:
            told.result()
    assert raised.value.event_id == observed(0).event_id
    assert log.append_unless_touched([observed(0)], seen_idx=1)[0].index == 1


def terminate(server: Postgres, which: LiteralString) -> int:
    """End the server's end of the connections that match; return how many."""
    ended: LiteralString = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE "
    with server.connect() as connection:
        return len(connection.execute(ended + "application_name = 'belog' AND " + which).fetchall())


def test_connections_that_broke_while_idle_are_not_noticed(
    postgres_server: Postgres, log: PostgresLog
) -> None:
    for n in range(5):
        assert log.append(observed(n)).index == n + 1
        terminate(postgres_server, "state = 'idle'")
        eventually(lambda: not terminate(postgres_server, "state = 'idle'"))
        assert log.next_position() == n + 2


class Proxy:
    """A way to a server that can fall silent: what the client sends arrives, answers do not."""

    def __init__(self, port: int) -> None:
        self.is_silent = False
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self._target = port
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._server.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
                self._open += [client, server]
                for source, sink in ((client, server), (server, client)):
                    answers = {"answers": source is server}
                    thread = threading.Thread(
                        target=self._pump, args=(source, sink), kwargs=answers
                    )
                    self._threads.append(thread)
                    thread.start()

    def _pump(self, source: socket.socket, sink: socket.socket, *, answers: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                if not (answers and self.is_silent):
                    sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for connection in [self._server, *self._open]:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for connection in [self._server, *self._open]:
            connection.close()


def test_server_that_falls_silent(
    postgres_server: Postgres, postgres_schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_client, "ANSWER_S", 1.0)
    monkeypatch.setattr(postgres_client, "CONNECT_S", 2)
    monkeypatch.setattr(postgres_client, "RECONNECT_S", 1.0)
    port = postgres_server.port
    with contextlib.closing(Proxy(port)) as proxy:
        uri = postgres_server.uri.replace(str(port), str(proxy.port))
        with opened(f"{uri}?schema={postgres_schema}") as log:
            # The second one of a connection asks whether the statement is understood.
            for n in (0, 2):
                log.append(observed(n))
            proxy.is_silent = True
            start = monotonic()
            with pytest.raises(OutcomeUnknown) as raised:
                log.append(observed(1))
            with pytest.raises(Unavailable):
                log.next_position()
            assert monotonic() - start < CLEAR_ERROR_S
            proxy.is_silent = False
            # It did arrive; a retry that looks finds out.
            assert log.next_position() == 4
            assert raised.value.event_id == observed(1).event_id
            with pytest.raises(IndexConflict):
                log.append_unless_touched([observed(1)], seen_idx=3)


# --- waiting


def test_notification_wakes(log: PostgresLog, uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("belog.storage.postgres.POLL_S", 120.0)
    with opened(uri) as other, ThreadPoolExecutor(1) as pool:
        # The listener has to listen before there is something to hear.
        eventually(lambda: not log.wait(1, 0.01) and listening(log))
        woken = pool.submit(log.wait, 1, 60.0)
        other.append(observed(0))
        assert woken.result(timeout=20)


def listening(log: PostgresLog) -> bool:
    with log._pool.connection() as connection:  # noqa: SLF001
        return bool(
            connection.execute(
                "SELECT 1 FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND state = 'idle'"
            ).fetchall()
        )


def test_follower_sees_events_whose_notification_was_lost(
    postgres_server: Postgres, log: PostgresLog, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_notify, "RETRY_S", 1e9)
    seen: list[int] = []

    def follow() -> None:
        with opened(uri) as other:
            for stored in other.follow():
                seen.append(stored.index)
                if stored.index == 20:
                    return

    thread = threading.Thread(target=follow)
    thread.start()
    eventually(lambda: terminate(postgres_server, "query LIKE 'LISTEN%'"))
    for n in range(20):
        log.append(observed(n))
    thread.join(30)
    assert seen == list(range(21))


def test_close_ends_followers(log: PostgresLog) -> None:
    ended = threading.Event()

    def follow() -> None:
        assert [stored.index for stored in log.follow()] == [0]
        ended.set()

    thread = threading.Thread(target=follow)
    thread.start()
    eventually(lambda: listening(log))
    log.close()
    thread.join(5)
    assert ended.is_set()


# --- records that are no events


def test_records_that_are_no_events_are_passed_by(uri: str) -> None:
    with opened(uri) as source, opened(f"{uri}&log=copy") as log:
        source.append_batch([observed(n) for n in range(3)])
        copied = [CopiedRecord(r.position, r.created_at, r.value or b"") for r in source.scan(1)]
        copied[1] = CopiedRecord(7, 3, b"garbage")
        copied[2] = CopiedRecord(9, 1, copied[2].value)
        log.copy_records(copied, after=0)
        assert [stored.index for stored in log.read().events] == [0, 1, 9]
        wanted = EventFilter(actors=("writer-0",))
        assert [stored.index for stored in log.read(0, wanted).events] == [1, 9]
        times = [stored.created_at for stored in log.read().events]
        assert times == sorted(times)
        assert log.get(7) is None
        assert (log.next_position(), log.statistics().void, log.statistics().gaps) == (10, 1, 6)
        with pytest.raises(IndexConflict) as raised:
            log.copy_records([CopiedRecord(11, 1, b"")], after=8)
        assert raised.value.next_idx == 10
