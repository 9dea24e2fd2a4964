"""The short ways of the tables make what the plain ones make."""

import random

from belog.processors.indexes import Where
from belog.processors.memory_tables import MemoryTables
from belog.processors.own_events import OwnEvents
from belog.processors.rows import ROW_TYPES
from belog.processors.table_fold import TableFold
from belog.schemas.envelope import StoredEvent
from belog.schemas.fold import Accepted, Confirmed, Fold
from belog.storage.interface import CopiedRecord
from belog.storage.memory import MemoryLog
from tests.examples import LOG_ID, T0
from tests.table_logs import random_records

RECORDS = 3_000


def test_a_writers_own_events_move_the_rows_as_their_records_do(seed: int) -> None:
    rng = random.Random(seed)
    records = [item for item in random_records(rng, RECORDS) if item.value is not None]
    log = MemoryLog(clock=lambda: T0)
    log.initialize(log_id=LOG_ID)
    copied = [CopiedRecord(r.position, r.created_at, r.value or b"") for r in records[1:]]
    log.copy_records(copied, after=0)
    fold = TableFold()
    tables, plain, judging, own = MemoryTables(fold), MemoryTables(), Fold(), OwnEvents()
    tables.counts()  # from now on its indexes follow each change
    by_record, by_event = TableFold(), TableFold()
    events: list[StoredEvent] = []
    followed: list[StoredEvent] = []
    taken = 0
    for record in log.scan(0, 10 * RECORDS):
        outcome = judging.apply(record)
        assert outcome is not None
        if (
            isinstance(outcome.verdict, Accepted)
            and outcome.event is not None
            and outcome.event.subject_kind != "system"
            and record.position == by_event.fold.next_position
            and rng.random() < 0.95
        ):
            confirmed = Confirmed(
                record.position,
                record.created_at,
                record.value or b"",
                outcome.event,
                outcome.verdict.after,
            )
            own.put([confirmed])
            taken += 1
            rows = [(c.after.row_id, c.before, c.after) for c in by_record.apply([record]).rows]
            assert by_event.take([confirmed], []) == rows
        else:
            by_record.apply([record])
            by_event.apply([record])
        if rng.random() < 0.03:
            followed += tables.read_on(log, rng.choice((1, 7, 1000)), own).events
    plain.apply(log.scan(0, 10 * RECORDS), events)
    while tables.status().position < plain.status().position:
        followed += tables.read_on(log, rng.choice((7, 1000)), own).events
    assert taken > RECORDS / 4
    assert followed == events
    assert tables.status() == plain.status()
    assert tables.counts() == plain.counts()
    assert sorted(tables.indexes()) == sorted(plain.indexes())
    assert fold.fold.merkle.root() == judging.merkle.root()
    # Made of the rows at once, and not change by change.
    entered = MemoryTables(by_record)
    assert sorted(tables.indexes()) == sorted(entered.indexes())
    for kind, states in entered.counts().value.items():
        for state in states:
            for index in rng.sample(range(RECORDS), 20):
                counted = tables.count_since(kind, state, index)
                assert counted == entered.count_since(kind, state, index)
    for cls in ROW_TYPES.values():
        assert fold.table(cls) == by_event.table(cls) == by_record.table(cls)
        assert tables.list_rows(cls, Where()) == plain.list_rows(cls, Where())
