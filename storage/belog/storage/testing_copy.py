"""The contract suite: replicas with the origin's indices, and copies of primary logs."""

from collections.abc import Sequence
from typing import Final

import pytest

from belog.schemas.envelope import StoredEvent, encode_event
from belog.schemas.errors import BelogError, IndexConflict, NotFound, ReplicaRefused
from belog.schemas.fold import Accepted, Fold, Record
from belog.schemas.merkle import MerkleRange
from belog.schemas.replica import ReplicaRecord, encode_replica
from belog.storage.creation import log_created
from belog.storage.interface import CopiedRecord, EventLog, LogEnd
from belog.storage.testing_base import ORIGIN_ID, ContractBase, LogOpener, MakeLog, appended, folded
from belog.storage.testing_events import Story, observed

__all__ = ["CopyContract"]

T0: Final = 1_700_000_000_000_000
COUNT: Final = 120


def origin(count: int = COUNT) -> tuple[list[CopiedRecord], list[StoredEvent], Fold]:
    """Return records for a replica, the events in them, and the fold of their origin.

    The origin's indices leave holes, as those of a compacted topic do.
    """
    fold = Fold()
    records: list[CopiedRecord] = []
    events: list[StoredEvent] = []
    previous = -1
    for n, event in enumerate([log_created(ORIGIN_ID, "origin", T0), *Story(11).events(count - 1)]):
        index = n * 3 + (n % 2 if n else 0)
        created_at = T0 + n * 10
        outcome = fold.apply(Record(index, created_at, encode_event(event)))
        assert outcome is not None
        assert isinstance(outcome.verdict, Accepted)
        wrapped = ReplicaRecord(ORIGIN_ID.bytes, index, previous, created_at, encode_event(event))
        records.append(CopiedRecord(index, created_at, encode_replica(wrapped)))
        events.append(StoredEvent(index, created_at, event))
        previous = index
    return records, events, fold


def in_steps(log: EventLog, records: Sequence[CopiedRecord], size: int) -> None:
    """Copy records, `size` at a time, each step behind the one before."""
    after = -1
    for start in range(0, len(records), size):
        step = records[start : start + size]
        log.copy_records(step, after=after)
        after = step[-1].index


class CopyContract(ContractBase):
    """How records enter that have their place and time already."""

    @pytest.mark.parametrize("size", [1, 50, COUNT])
    def test_a_replica_is_read_by_the_origins_cursors(self, open_log: LogOpener, size: int) -> None:
        records, events, fold = origin()
        log = open_log(replica=True)
        in_steps(log, records, size)
        assert log.read().events == tuple(events)
        end = log.end()
        assert (end.next_idx, end.root, end.log_id) == (
            fold.next_idx,
            fold.merkle.root(),
            ORIGIN_ID,
        )
        for since in (0, 1, events[40].index, events[40].index + 1, events[-1].index):
            page = log.read(since, limit=5)
            assert list(page.events) == [s for s in events if s.index >= since][:5]
            assert page.next_idx > since
        past = log.read(fold.next_idx)
        assert (past.events, past.next_idx, past.has_more) == ((), fold.next_idx, False)
        for stored in events:
            assert log.get(stored.index) == stored
        assert log.get_by_id(events[7].event.event_id) == events[7]
        hole = next(i for i in range(fold.next_idx) if all(s.index != i for s in events))
        assert log.get(hole) is None
        assert log.get(fold.next_idx) is None

    def test_a_replica_counts_what_it_holds(self, open_log: LogOpener) -> None:
        records, events, _ = origin()
        log = open_log(replica=True)
        in_steps(log, records, 40)
        counted = log.statistics()
        assert (counted.events, counted.first_index) == (len(events), 0)
        assert counted.last_index == events[-1].index
        assert counted.first_created_at == events[0].created_at
        assert counted.last_created_at == events[-1].created_at

    def test_a_copy_must_follow_what_is_there(self, open_log: LogOpener) -> None:
        records, events, _ = origin()
        log = open_log(replica=True)
        log.copy_records(records[:20], after=-1)
        last = records[19].index
        for step, after in (
            (records[:20], -1),
            (records[20:40], -1),
            (records[25:40], records[24].index),
            (records[19:40], records[18].index),
        ):
            with pytest.raises(IndexConflict):
                log.copy_records(step, after=after)
            assert list(log.read().events) == events[:20]
        log.copy_records(records[20:], after=last)
        assert list(log.read().events) == events
        log.copy_records([], after=records[-1].index)

    def test_indices_of_a_copy_grow(self, open_log: LogOpener) -> None:
        records, _, _ = origin(10)
        log = open_log(replica=True)
        for wrong in ([records[1], records[0]], [records[0], records[0]]):
            with pytest.raises(ValueError, match="does not come after"):
                log.copy_records(wrong, after=-1)
        assert log.read().events == ()

    def test_a_replica_goes_on_where_it_ended(self, open_log: LogOpener) -> None:
        records, events, fold = origin()
        log = open_log(replica=True)
        log.copy_records(records[:60], after=-1)
        if not log.capabilities.durable:
            log.copy_records(records[60:], after=records[59].index)
            assert log.end().root == fold.merkle.root()
            return
        log.close()
        again = open_log(replica=True)
        assert list(again.read().events) == events[:60]
        again.copy_records(records[60:], after=again.end().next_idx - 1)
        assert list(again.read().events) == events
        assert again.end().root == fold.merkle.root()

    def test_plain_records_do_not_belong_into_a_replica(self, open_log: LogOpener) -> None:
        log = open_log(replica=True)
        plain = CopiedRecord(0, T0, encode_event(log_created(ORIGIN_ID, "origin", T0)))
        with pytest.raises(ReplicaRefused):
            log.copy_records([plain], after=-1)
        assert log.read().events == ()
        records, events, _ = origin(3)
        log.copy_records(records, after=-1)
        with pytest.raises(ReplicaRefused):
            log.copy_records(
                [CopiedRecord(99, T0, encode_event(observed(1)))], after=records[-1].index
            )
        assert list(log.read().events) == events

    @pytest.mark.parametrize("first", [0, 3])
    def test_an_empty_log_takes_the_first_event_of_another(
        self, make_log: MakeLog, first: int
    ) -> None:
        created = encode_event(log_created(ORIGIN_ID, "origin", T0))
        copies = [
            CopiedRecord(first, T0, created),
            CopiedRecord(first + 2, T0 + 1, encode_event(observed(1))),
        ]
        with make_log() as log:
            identity = log.initialize(instance="origin", log_id=ORIGIN_ID, empty=True)
            assert (identity.log_id, identity.is_replica) == (ORIGIN_ID, False)
            assert log.next_position() == 0
            with pytest.raises(NotFound):
                log.end()
            log.copy_records(copies, after=-1)
            assert [s.index for s in log.read().events] == [first, first + 2]
            root = MerkleRange()
            for copied in copies:
                root.add(copied.value)
            assert log.end() == LogEnd(first + 3, root.root(), ORIGIN_ID)
            assert log.initialize(log_id=ORIGIN_ID, empty=True) == identity
            if not log.capabilities.durable:
                return
        with make_log() as again:
            assert again.initialize(log_id=ORIGIN_ID) == identity
            (receipt,) = appended(again, [observed(2)])
            assert receipt.index == first + 3

    def test_records_of_a_replica_do_not_belong_into_a_primary_log(self, log: EventLog) -> None:
        records, _, _ = origin(3)
        with pytest.raises(ReplicaRefused):
            log.copy_records(records[1:], after=0)
        assert log.next_position() == 1

    def test_a_primary_log_takes_copies_with_holes(self, log: EventLog) -> None:
        copies = [CopiedRecord(n, T0 + n, encode_event(observed(n))) for n in (4, 5, 9)]
        with pytest.raises(IndexConflict):
            log.copy_records(copies, after=3)
        try:
            log.copy_records(copies, after=0)
        except BelogError:
            # Refused as a whole where indices cannot be kept; never moved to other ones.
            assert not log.capabilities.explicit_index
            assert log.next_position() == 1
            return
        assert [s.index for s in log.read().events] == [0, 4, 5, 9]
        assert [s.event for s in log.read(1).events] == [observed(n) for n in (4, 5, 9)]
        for hole in (1, 6, 8):
            assert log.get(hole) is None
        page = log.read(6)
        assert ([s.index for s in page.events], page.next_idx) == ([9], 10)
        (receipt,) = appended(log, [observed(10)])
        assert receipt.index == 10
        fold, _ = folded(log)
        assert (log.end().next_idx, log.end().root) == (11, fold.merkle.root())
        counted = log.statistics()
        assert (counted.events, counted.last_index) == (5, 10)
        assert counted.gaps + counted.tombstones == 6
