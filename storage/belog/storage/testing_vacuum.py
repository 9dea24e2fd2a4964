"""The contract suite: what a vacuum removes, keeps, and tells readers."""

from functools import partial
from pathlib import Path
from typing import Final

import pytest

from belog.schemas.envelope import Event, StoredEvent
from belog.schemas.errors import Diverged, Gone, NotFound, Unavailable, Unsupported
from belog.schemas.filters import EventFilter
from belog.schemas.fold import Fold
from belog.schemas.snapshot import RowBlock
from belog.schemas.snapshot_writer import image_of, write_snapshot
from belog.storage.creation import now_us
from belog.storage.horizon import VACUUMED, Removal
from belog.storage.interface import EventLog, OrderedLog, fold_log
from belog.storage.snapshots import SnapshotFile, SnapshotStore, restore_fold
from belog.storage.testing_base import ContractBase, LogOpener, accepted, appended, folded
from belog.storage.testing_events import Story, observed
from belog.storage.vacuum import fold_past_horizon

__all__ = ["VacuumContract"]

EVER: Final = 2**62
"""A time after all events."""
SUBJECTS: Final = 5
EVENTS: Final = 60


def snapshot_of(store: SnapshotStore, fold: Fold) -> SnapshotFile:
    """Take a snapshot with rows that nobody reads here."""
    rows = [RowBlock("partition", 0, b"")]
    file, _ = store.save(
        fold.log_id or pytest.fail("the log has no first event"),
        fold.next_idx,
        lambda stream: write_snapshot(stream, image_of(fold), rows, taken_at=1, rows_version=1),
    )
    return file


def readable_from(log: EventLog, store: SnapshotStore, horizon: int) -> int:
    """Let a log begin with a snapshot; return the first index that it can be read from.

    What lies between horizon and snapshot cannot be judged without what was removed. Who writes
    conditionally need not judge.
    """
    log.use_snapshots(partial(fold_past_horizon, log, store))
    return store.files()[-1].next_idx if isinstance(log, OrderedLog) else horizon


def round_robin(first: int, count: int = EVENTS) -> list[Event]:
    """Return events of a few partitions, one after the other, over and over."""
    return [observed(n, f"r{n % SUBJECTS}") for n in range(first, first + count)]


CLOCK_STEP_US = 2_000
"""More than the coarsest clock of a log tells apart, microseconds."""


class VacuumContract(ContractBase):
    """How events leave."""

    keeps_vacuumed = False
    """Whether what this process has on its disk goes on answering for what was removed."""

    @pytest.fixture
    def store(self, tmp_path: Path) -> SnapshotStore:
        """Give an empty folder for snapshots."""
        return SnapshotStore(tmp_path / "snapshots")

    def settled(self, log: EventLog) -> EventLog:
        """Wait until removed records are gone, and return a log that sees this.

        Ordered logs take their time, and may have some at hand for a while.
        """
        return log

    def vacuumed(self, log: EventLog, store: SnapshotStore) -> tuple[EventLog, list[StoredEvent]]:
        """Fill, snapshot and vacuum a log; return all events that were in it, the vacuum's last."""
        appended(log, round_robin(0))
        before = accepted(log)
        # This object knows the log whole from now on.
        log.end()
        snapshot_of(store, folded(log)[0])
        report = log.vacuum(EVER, dry_run=False, snapshots=store)
        assert report.removed == EVENTS - SUBJECTS
        mark = log.read(report.horizon).events[-1]
        assert mark.event.event_type == VACUUMED
        return self.settled(log), [*before, mark]

    def test_vacuum_is_refused_where_it_is_not_built(
        self, log: EventLog, store: SnapshotStore
    ) -> None:
        if log.capabilities.vacuum:
            with pytest.raises(NotFound, match="snapshot"):
                log.vacuum(EVER, dry_run=False)
            return
        for dry_run in (True, False):
            with pytest.raises(Unsupported):
                log.vacuum(EVER, dry_run=dry_run, snapshots=store)
        with pytest.raises(Unsupported):
            log.remove([Removal(0, None)])

    def test_a_dry_run_changes_nothing(self, log: EventLog, store: SnapshotStore) -> None:
        if not log.capabilities.vacuum:
            return
        appended(log, round_robin(0))
        before = accepted(log)
        snapshot_of(store, folded(log)[0])
        report = log.vacuum(EVER, snapshots=store)
        assert (report.removed, report.dry_run) == (EVENTS - SUBJECTS, True)
        assert report.horizon == 1 + EVENTS - SUBJECTS
        assert accepted(log) == before
        assert log.horizon() is None

    def test_what_is_superseded_leaves_and_the_rest_stays(
        self, open_log: LogOpener, store: SnapshotStore
    ) -> None:
        log = open_log()
        if not log.capabilities.vacuum:
            return
        log, events = self.vacuumed(log, store)
        horizon = 1 + EVENTS - SUBJECTS
        kept = [events[0], *events[horizon:]]
        for each in (log, open_log()):
            left = [r for r in each.scan_raw(0, 1_000) if r.value is not None]
            assert [r.position for r in left] == [s.index for s in kept]
            first = readable_from(each, store, horizon)
            assert list(each.read(first).events) == [s for s in kept if s.index >= first]
            assert each.get(first) == next(s for s in kept if s.index >= first)
            known = each.horizon()
            assert known is not None
            assert (known.index, known.snapshot) == (horizon, store.files()[0].path.as_uri())

    def test_readers_behind_the_horizon_are_told(
        self, open_log: LogOpener, store: SnapshotStore
    ) -> None:
        log = open_log()
        if not log.capabilities.vacuum:
            return
        log, events = self.vacuumed(log, store)
        horizon = 1 + EVENTS - SUBJECTS
        of_one = EventFilter(partition_refs=("r1",))
        for each in (log, open_log()):
            for read in (
                lambda each=each: each.read(0),
                lambda each=each: each.read(horizon - 1),
                lambda each=each: each.read(1, of_one),
                lambda each=each: each.get(3),
                lambda each=each: next(each.follow(2)),
                lambda each=each: folded(each),
                lambda each=each: fold_log(each, Fold()),
            ):
                with pytest.raises(Gone) as caught:
                    read()
                assert caught.value.horizon == horizon
                assert caught.value.snapshot == store.files()[0].path.as_uri()
            first = readable_from(each, store, horizon)
            assert next(each.follow(first)) == next(s for s in events if s.index >= first)

    def test_a_fold_goes_on_from_the_snapshot(
        self, open_log: LogOpener, store: SnapshotStore
    ) -> None:
        log = open_log()
        if not log.capabilities.vacuum:
            return
        whole_log = log
        log, _ = self.vacuumed(log, store)
        appended(log, round_robin(500, 20))
        of_one = EventFilter(partition_refs=("r1",))
        whole = whole_log.end()
        again = open_log()
        if not self.keeps_vacuumed:
            with pytest.raises(Gone):
                again.end()
        again.use_snapshots(lambda: fold_past_horizon(again, store))
        assert again.end() == whole
        found = restore_fold(again, again.initialize(), store)
        assert found is not None
        fold = fold_log(again, found[1])
        assert (fold.merkle.root(), fold.next_idx) == (whole.root, whole.next_idx)
        page = again.read(found[0].next_idx, of_one)
        assert [s.event for s in page.events] == [e for e in round_robin(500, 20) if _is_one(e)]
        assert again.get_by_id(observed(519).event_id) == again.read(page.next_idx - 1).events[0]

    def test_only_what_was_superseded_before_the_time(
        self, log: EventLog, store: SnapshotStore
    ) -> None:
        if not log.capabilities.vacuum:
            return
        appended(log, round_robin(0, 20))
        log.append(observed(1_000, "clock"))
        second = log.append(observed(1_001, "clock"))
        # Apart by the clock of the log, whichever it is; some count milliseconds only.
        while now_us() < second.created_at + CLOCK_STEP_US:
            pass
        last = log.append(observed(2_000, "r0"))
        assert last.created_at > second.created_at
        snapshot_of(store, folded(log)[0])
        report = log.vacuum(last.created_at, dry_run=False, snapshots=store)
        # Of r0 the one before the last is superseded at that time, and not before it.
        assert report.removed == 20 - SUBJECTS + 1
        log = self.settled(log)
        left = [r.position for r in log.scan_raw(0, 1_000) if r.value is not None]
        assert left[:2] == [0, 16]

    def test_a_vacuum_may_be_repeated_and_go_on(self, log: EventLog, store: SnapshotStore) -> None:
        if not log.capabilities.vacuum:
            return
        log, events = self.vacuumed(log, store)
        again = log.vacuum(EVER, dry_run=False, snapshots=store)
        assert again.removed == 0
        assert again.horizon == 1 + EVENTS - SUBJECTS
        appended(log, round_robin(500, 20))
        readable_from(log, store, again.horizon)
        last = log.read(events[-1].index).events[-1].index
        assert last - events[-1].index == 20 or isinstance(log, OrderedLog)
        found = restore_fold(log, log.initialize(), store)
        assert found is not None
        snapshot_of(store, fold_log(log, found[1]))
        third = log.vacuum(EVER, dry_run=False, snapshots=store)
        assert (third.removed, third.horizon) == (20, last + 1 - SUBJECTS)
        log = self.settled(log)
        with pytest.raises(Gone) as caught:
            log.scan(again.horizon, 1_000)
        assert caught.value.horizon == third.horizon

    def test_a_vacuum_that_dies_is_taken_up(
        self, log: EventLog, store: SnapshotStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if not log.capabilities.vacuum:
            return
        appended(log, round_robin(0))
        events = accepted(log)
        snapshot_of(store, folded(log)[0])
        remove = log.remove

        def half(removals: list[Removal]) -> None:
            remove(removals[: len(removals) // 2])
            raise Unavailable("the power went out")

        with monkeypatch.context() as patch:
            patch.setattr(log, "remove", half)
            with pytest.raises(Unavailable):
                log.vacuum(EVER, dry_run=False, snapshots=store)
        end = log.next_position()
        report = log.vacuum(EVER, dry_run=False, snapshots=store)
        # What was recorded before is not recorded again.
        assert (report.horizon, log.next_position() >= end) == (1 + EVENTS - SUBJECTS, True)
        log = self.settled(log)
        left = [r.position for r in log.scan_raw(0, 1_000) if r.value is not None]
        assert left[: SUBJECTS + 1] == [0, *(s.index for s in events[-SUBJECTS:])]
        with pytest.raises(Gone):
            log.read(0)

    def test_a_snapshot_that_is_not_of_this_history_is_refused(
        self, log: EventLog, store: SnapshotStore
    ) -> None:
        if not log.capabilities.vacuum:
            return
        appended(log, round_robin(0))
        fold, events = folded(log)
        fold.merkle.add(b"not in the log")
        file = snapshot_of(store, fold)
        with pytest.raises(Diverged):
            log.vacuum(EVER, dry_run=False, snapshots=store)
        data = bytearray(file.path.read_bytes())
        data[-60] ^= 1
        file.path.write_bytes(data)
        with pytest.raises(NotFound):
            log.vacuum(EVER, dry_run=False, snapshots=store)
        assert accepted(log) == events
        assert log.horizon() is None

    def test_builds_and_job_runs_keep_their_newest_event(
        self, log: EventLog, store: SnapshotStore
    ) -> None:
        if not log.capabilities.vacuum:
            return
        appended(log, Story(5).events(150))
        fold, events = folded(log)
        snapshot_of(store, fold)
        newest = {s.event.subject: s.index for s in events}
        report = log.vacuum(EVER, dry_run=False, snapshots=store)
        log = self.settled(log)
        kept = sorted(newest.values())
        assert report.removed == len(events) - len(kept)
        left = [r.position for r in log.scan_raw(0, 1_000) if r.value is not None]
        assert left[: len(kept)] == kept
        found = restore_fold(log, log.initialize(), store)
        assert found is not None
        assert found[1].subjects == fold.subjects

    def test_what_is_left_is_counted(self, open_log: LogOpener, store: SnapshotStore) -> None:
        log = open_log()
        if not log.capabilities.vacuum:
            return
        log.statistics()
        log, events = self.vacuumed(log, store)
        for each in (log, open_log()):
            each.use_snapshots(partial(fold_past_horizon, each, store))
            counted = each.statistics()
            assert counted.events == SUBJECTS + 2
            assert (counted.first_index, counted.last_index) == (0, events[-1].index)
            assert counted.by_type["v1.partition.observed"] == SUBJECTS
            assert counted.gaps + counted.tombstones >= EVENTS - SUBJECTS


def _is_one(event: Event) -> bool:
    return event.subject_id == "r1"
