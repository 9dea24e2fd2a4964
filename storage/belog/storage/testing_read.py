"""The contract suite: pages, filters, single events, the end, and counts."""

import threading
from collections import Counter

import pytest

from belog.schemas.envelope import StoredEvent, encode_event
from belog.schemas.errors import InvalidFilter, LimitExceeded, NotFound
from belog.schemas.filters import ALL, EventFilter
from belog.schemas.limits import PAGE_EVENTS_MAX
from belog.storage.interface import EventLog
from belog.storage.testing_base import WAIT_S, ContractBase, LogOpener, accepted, appended, folded
from belog.storage.testing_events import Story, observed, random_filter, wanted_by

__all__ = ["ReadContract"]

STORY_EVENTS = 400
FILTERS = 60


def read_all(log: EventLog, wanted: EventFilter, limit: int) -> list[StoredEvent]:
    """Page through a log from its beginning; check what every page promises."""
    found: list[StoredEvent] = []
    cursor = 0
    while True:
        page = log.read(cursor, wanted, limit)
        assert len(page.events) <= limit
        assert all(cursor <= s.index < page.next_idx for s in page.events)
        assert page.next_idx > cursor or not page.has_more
        found += page.events
        cursor = page.next_idx
        if not page.has_more:
            assert cursor == log.end().next_idx
            return found


class ReadContract(ContractBase):
    """What a log gives back."""

    def test_pages(self, log: EventLog) -> None:
        events = [observed(n) for n in range(9)]
        appended(log, events)
        page = log.read(0, ALL, 4)
        assert [s.index for s in page.events] == [0, 1, 2, 3]
        assert (page.next_idx, page.has_more) == (4, True)
        page = log.read(4, ALL, 4)
        assert [s.index for s in page.events] == [4, 5, 6, 7]
        page = log.read(page.next_idx, ALL, 4)
        assert ([s.index for s in page.events], page.next_idx, page.has_more) == ([8, 9], 10, False)
        exact = log.read(0, ALL, 10)
        assert (len(exact.events), exact.next_idx, exact.has_more) == (10, 10, False)
        assert log.read().events == tuple(accepted(log))
        for limit in (1, 3, 10, PAGE_EVENTS_MAX):
            assert read_all(log, ALL, limit) == accepted(log)

    def test_a_page_at_or_past_the_end_is_empty_and_stays(self, log: EventLog) -> None:
        for wanted in (ALL, EventFilter(actors=("tester",))):
            for since in (1, 2, 500):
                page = log.read(since, wanted)
                assert (page.events, page.next_idx, page.has_more) == ((), since, False)

    def test_a_filtered_page_without_a_match_moves_on(self, log: EventLog) -> None:
        appended(log, [observed(n) for n in range(20)])
        for wanted in (
            EventFilter(actors=("nobody",)),
            EventFilter(partition_refs=("nowhere",)),
            EventFilter(partition_patterns=("nowhere/**",)),
            EventFilter(created_to=0),
        ):
            page = log.read(0, wanted)
            assert (page.events, page.next_idx, page.has_more) == ((), 21, False)
            assert log.read(7, wanted).next_idx == 21

    def test_limits_and_cursors_out_of_range(self, log: EventLog) -> None:
        with pytest.raises(LimitExceeded):
            log.read(0, ALL, PAGE_EVENTS_MAX + 1)
        for since, limit in ((0, 0), (0, -1), (-1, 10)):
            with pytest.raises(ValueError, match="at least"):
                log.read(since, ALL, limit)
            with pytest.raises(ValueError, match="at least"):
                log.read(since, EventFilter(actors=("a",)), limit)
        with pytest.raises(InvalidFilter):
            log.read(0, EventFilter(partition_patterns=("[",)))

    @pytest.mark.parametrize("story_seed", [1, 2, 3])
    def test_filters_against_brute_force(self, log: EventLog, story_seed: int) -> None:
        story = Story(story_seed)
        told = story.events(STORY_EVENTS)
        # In pieces, with reads between them: what was indexed or cached must grow along.
        for start in range(0, len(told), 90):
            appended(log, told[start : start + 90])
            everything = accepted(log)
            assert len(everything) == 1 + len(told[: start + 90]), "the story must be legal"
            for _ in range(FILTERS // 5):
                wanted = random_filter(story.random, everything)
                limit = story.random.choice((1, 7, 100, PAGE_EVENTS_MAX))
                assert read_all(log, wanted, limit) == wanted_by(wanted, everything), wanted

    def test_filter_of_a_subject_finds_all_that_concerns_it(self, log: EventLog) -> None:
        appended(log, Story(9).events(120))
        everything = accepted(log)
        runs = [s.event for s in everything if s.event.event_type == "v1.job.scheduled"]
        outputs = runs[0].body()["outputs"]
        assert isinstance(outputs, list)
        found = log.read(0, EventFilter(partition_refs=(str(outputs[0]),))).events
        kinds = Counter(s.event.event_type for s in found)
        # Later events of the run say nothing of its outputs, and concern them all the same.
        assert kinds["v1.build.received"] == kinds["v1.job.scheduled"] == 1
        mine = [s for s in everything if s.event.subject_id == runs[0].subject_id]
        assert len(mine) > 1
        assert all(s in found for s in mine)
        assert kinds["v1.partition.requested"] == 1

    def test_single_events(self, log: EventLog) -> None:
        appended(log, [observed(n) for n in range(5)])
        for stored in accepted(log):
            assert log.get(stored.index) == stored
            assert log.get_by_id(stored.event.event_id) == stored
        for absent in (6, 2**40, -1):
            assert log.get(absent) is None
        assert log.get_by_id(b"x" * 16) is None
        appended(log, [observed(77)])
        found = log.get_by_id(observed(77).event_id)
        assert found is not None
        assert found.index == 6

    def test_end_is_the_fold_of_a_scan(self, log: EventLog) -> None:
        told = Story(4).events(150)
        for start in range(0, 150, 50):
            appended(log, told[start : start + 50])
            fold, _ = folded(log)
            end = log.end()
            assert end.next_idx == fold.next_idx == start + 51
            assert end.root == fold.merkle.root()
            assert end.log_id == fold.log_id

    def test_scan_gives_records_as_they_were_written(self, log: EventLog) -> None:
        events = [observed(n) for n in range(12)]
        appended(log, events)
        records = log.scan(1)
        assert [r.position for r in records] == list(range(1, 13))
        assert [r.value for r in records] == [encode_event(e) for e in events]
        assert [r.position for r in log.scan(5, 3)] == [5, 6, 7]
        assert log.scan(13) == []
        assert log.scan(999) == []

    def test_statistics(self, log: EventLog) -> None:
        assert log.statistics().events == 1
        told = Story(5).events(200)
        appended(log, told)
        everything = accepted(log)
        counted = log.statistics()
        assert counted.events == len(everything) == 201
        assert (counted.first_index, counted.last_index) == (0, 200)
        assert counted.first_created_at == everything[0].created_at
        assert counted.last_created_at == everything[-1].created_at
        assert counted.bytes == sum(len(encode_event(s.event)) for s in everything)
        assert counted.by_type == Counter(s.event.event_type for s in everything)
        assert counted.by_subject_kind == Counter(s.event.subject_kind for s in everything)
        assert (counted.void, counted.duplicates, counted.tombstones, counted.gaps) == (0, 0, 0, 0)

    def test_an_empty_replica_has_nothing(self, open_log: LogOpener) -> None:
        log = open_log(replica=True)
        page = log.read()
        assert (page.events, page.has_more) == ((), False)
        assert log.get(0) is None
        assert log.statistics().events == 0
        assert log.statistics().last_index is None
        with pytest.raises(NotFound):
            log.end()

    def test_wait(self, log: EventLog) -> None:
        assert log.wait(0, WAIT_S)
        assert not log.wait(1, 0.05)
        assert not log.wait(1, 0.0)
        answers: list[bool] = []
        waiting = threading.Event()

        def wait() -> None:
            waiting.set()
            answers.append(log.wait(1, WAIT_S))

        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        assert waiting.wait(WAIT_S)
        appended(log, [observed(1)])
        thread.join(WAIT_S)
        assert answers == [True]
        assert log.wait_for_index(1, WAIT_S)
