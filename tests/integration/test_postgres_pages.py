"""Rows of several records in PostgreSQL: each record is there as if it had a row of its own."""

import random
from collections.abc import Iterator

import pytest

from belog.schemas.envelope import Event
from belog.schemas.errors import IndexConflict, OutcomeUnknown
from belog.schemas.events import PartitionObserved, new_event
from belog.schemas.filters import EventFilter
from belog.storage.horizon import Removal
from belog.storage.postgres import PostgresLog
from belog.storage.postgres_client import connect
from belog.storage.postgres_uri import parse_uri
from tests.integration.log_workers import T0, observed
from tests.integration.postgres_workers import opened
from tests.servers import Postgres

pytestmark = pytest.mark.integration

SIZES = (1, 2, 40, 1, 300, 3, 75)
LARGE_BYTES = 9_000
"""More than a page of the server."""


@pytest.fixture
def uri(postgres_server: Postgres, postgres_schema: str) -> str:
    return f"{postgres_server.uri}?schema={postgres_schema}"


@pytest.fixture
def log(uri: str) -> Iterator[PostgresLog]:
    with opened(uri) as log:
        yield log


def sized(n: int, chooser: random.Random) -> Event:
    size = chooser.choice([10, 300, 3_000, LARGE_BYTES])
    return new_event(
        PartitionObserved(source="x" * size),
        f"data/{n}",
        event_id=n.to_bytes(16, "big"),
        actor="test",
        occurred_at=T0 + n,
    )


def rows_in(uri: str) -> int:
    target = parse_uri(uri)
    with connect(target) as connection:
        row = connection.execute(
            target.script("SELECT count(*) FROM {schema}.belog_records")
        ).fetchone()
    assert row is not None
    return int(row[0])


def filled(log: PostgresLog, seed: int) -> list[Event | None]:
    """Append batches; return what lies at each index."""
    print(f"seed {seed}")  # noqa: T201 - shown when the test fails
    chooser = random.Random(seed)
    model: list[Event | None] = [stored.event for stored in log.read(0).events]
    for size in SIZES:
        events = [sized(len(model) + n, chooser) for n in range(size)]
        receipts = log.append_unless_touched(events, seen_idx=len(model))
        assert [r.index for r in receipts] == list(range(len(model), len(model) + size))
        model += events
    return model


def check(log: PostgresLog, model: list[Event | None], chooser: random.Random) -> None:
    """Compare all ways to read with the model, None where a record was removed."""
    there = [(index, event) for index, event in enumerate(model) if event is not None]
    for index, event in enumerate(model):
        stored = log.get(index)
        assert (stored and stored.event) == event
    for _ in range(30):
        since, limit = chooser.randrange(len(model) + 2), chooser.choice([1, 2, 30, 1_000])
        wanted = [index for index, _ in there if index >= since][:limit]
        assert [record.position for record in log.scan_raw(since, limit)] == wanted
        page = log.read(since, limit=limit)
        assert [(stored.index, stored.event) for stored in page.events] == [
            (index, event) for index, event in there if index in set(wanted)
        ]


def test_records_of_a_row_are_read_one_by_one(log: PostgresLog, uri: str) -> None:
    model = filled(log, 11)
    assert rows_in(uri) < len(model) * 0.8
    check(log, model, random.Random(1))
    for event in random.Random(2).sample(model[1:], 20):
        assert event is not None
        found = log.read(0, EventFilter(partition_refs=(event.subject_id,))).events
        assert [stored.event for stored in found] == [event]
        by_id = log.get_by_id(event.event_id)
        assert by_id is not None
        assert by_id.event == event


def test_records_are_removed_from_the_midst_of_rows(log: PostgresLog) -> None:
    model = filled(log, 12)
    chooser = random.Random(3)
    for _ in range(3):
        gone = chooser.sample(range(1, len(model)), 60)
        # A second time it changes nothing.
        for _ in range(2):
            log.remove([Removal(index, None) for index in sorted(gone)])
        for index in gone:
            model[index] = None
        check(log, model, chooser)
    # All but the ends: far more of a hole than one look crosses.
    log.remove([Removal(index, None) for index in range(2, len(model) - 1)])
    check(log, [*model[:2], *[None] * (len(model) - 3), model[-1]], chooser)


def test_only_records_behind_what_was_seen_touch(log: PostgresLog) -> None:
    log.append_batch([observed(n) for n in range(1, 61)])
    # Seen is the midst of a row.
    for seen in (2, 10, 31, 60):
        with pytest.raises(IndexConflict):
            log.append_unless_touched([observed(900), observed(seen)], seen_idx=seen)
        with pytest.raises(IndexConflict):
            log.append_unless_touched([observed(60)], seen_idx=seen)
    next_idx = 61
    for seen in (2, 10, 31, 60):
        twin = observed(seen - 1)
        receipts = log.append_unless_touched([twin], seen_idx=seen)
        assert [receipt.index for receipt in receipts] == [next_idx]
        next_idx += 1


def test_times_are_found_in_rows(log: PostgresLog) -> None:
    model = filled(log, 13)
    records = log.scan(0)
    times = sorted({record.created_at for record in records})
    for removed in (False, True):
        for time in times:
            firsts = [r.position for r in log.scan_raw(0, 1_000) if r.created_at >= time]
            assert log._store.index_at(time) == min(firsts)  # noqa: SLF001
        assert log._store.index_at(times[-1] + 1) == len(model)  # noqa: SLF001
        assert log._store.index_at(0) == (1 if removed else 0)  # noqa: SLF001
        log.remove([Removal(index, None) for index in (0, 30, 31, 32, 200)])


def test_error_after_the_first_commit_leaves_the_outcome_unknown(
    log: PostgresLog, uri: str
) -> None:
    target = parse_uri(uri)
    with connect(target) as connection:
        row = connection.execute(
            "SELECT pg_get_functiondef(oid) FROM pg_proc WHERE proname = 'belog_commit'"
            " AND pronamespace = to_regnamespace(%s)",
            [target.quoted],
        ).fetchone()
        assert row is not None
        text = row[0].replace(
            "v_lsn := pg_logical_emit_message(true, 'belog', '')", "PERFORM 1 / 0"
        )
        assert text != row[0]
        connection.execute(text.encode())
        log._crowded = 1  # noqa: SLF001 - so that the commit is deferred
        with pytest.raises(OutcomeUnknown):
            log.append(observed(1))
        connection.execute(row[0].encode())
    with pytest.raises(IndexConflict):
        log.append_unless_touched([observed(1)], seen_idx=1)
    assert log.next_position() == 2


def test_statement_that_the_server_forgot_is_prepared_again(log: PostgresLog) -> None:
    assert log.append(observed(1)).index == 1
    with log._pool.connection() as connection:  # noqa: SLF001
        connection.execute("DEALLOCATE ALL")
    assert log.append(observed(2)).index == 2
    assert log.append(observed(3)).index == 3
