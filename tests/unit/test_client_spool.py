"""A folder of events: kept in order, bounded, torn tails cut, damage refused, sent once."""

import os
import random
import resource
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from belog.client import Cursor, Page, Receipt, Spool, flush, spool
from belog.client.spool_codec import HEADER_BYTES
from belog.producers import Producer
from belog.schemas.envelope import Event, StoredEvent
from belog.schemas.errors import (
    BelogError,
    Closed,
    Corrupt,
    Forbidden,
    IllegalTransition,
    InvalidEvent,
    LogReplaced,
    LogTruncated,
    NewerFormat,
    OutcomeUnknown,
    Overloaded,
    Unavailable,
)
from belog.schemas.events import JobRunning, PartitionObserved, PartitionStale, new_event
from belog.storage.memory import MemoryLog
from belog.v1.event_log_pb2 import LogStatus


def event(ref: str = "a/1", *, payload: object = None) -> Event:
    made = PartitionObserved() if payload is None else payload
    return new_event(made, ref, event_id=uuid4(), actor="me", occurred_at=1)  # type: ignore[arg-type]


class Direct:
    """A log in the process, behind the part of a client that sending needs; fails as told."""

    def __init__(self) -> None:
        self.log = MemoryLog("spooled")
        self.log.initialize()
        self.producer = Producer(self.log, actor="me")
        self.fails: list[str] = []
        self.batches: list[int] = []
        self.looked_up = 0

    def append_batch(self, events: Sequence[Event]) -> list[Receipt | BelogError]:
        how = self.fails.pop(0) if self.fails else ""
        if how == "away":
            msg = "away"
            raise Unavailable(msg)
        if how == "forbidden":
            msg = "not you"
            raise Forbidden(msg)
        if how == "too large" and len(events) > 1:
            msg = "too large"
            raise InvalidEvent(msg)
        self.batches.append(len(events))
        results = self.producer.append_batch(events)
        if how == "lost":
            msg = "no answer"
            raise OutcomeUnknown(msg, event_id=events[0].event_id)
        if how == "last lost":
            results[-1] = OutcomeUnknown("no answer", event_id=events[-1].event_id)
        return results

    def event(self, which: int | bytes | UUID) -> StoredEvent | None:
        self.looked_up += 1
        if isinstance(which, int):
            return self.log.get(which)
        return self.log.get_by_id(which if isinstance(which, bytes) else which.bytes)

    def events(self, since: Cursor | int = 0, *, limit: int = 1) -> Page:
        start = since if isinstance(since, int) else since.next_idx
        page = self.log.read(start, limit=limit)
        return Page(page.events, Cursor(page.next_idx), page.has_more)

    def status(self) -> LogStatus:
        end = self.log.end()
        return LogStatus(next_idx=end.next_idx, log_id=str(end.log_id))

    def subjects(self) -> list[str]:
        return [stored.event.subject_id for stored in self.log.read(1).events]


@pytest.fixture
def log() -> Iterator[Direct]:
    made = Direct()
    yield made
    made.producer.close()
    made.log.close()


def test_events_leave_in_the_order_in_which_they_came(tmp_path: Path, log: Direct) -> None:
    refs = [f"a/{n}" for n in range(1_200)]
    with Spool(tmp_path) as kept:
        assert [kept.put(event(ref)) for ref in refs] == list(range(1_200))
        assert kept.status().pending == 1_200
        done = flush(kept, log)
    assert (done.sent, done.left, done.error) == (1_200, 0, None)
    assert log.subjects() == refs
    assert log.batches == [500, 500, 200]
    assert log.looked_up == 0


def test_events_are_there_for_the_next_who_opens_it(tmp_path: Path, log: Direct) -> None:
    first = event()
    with Spool(tmp_path) as kept:
        kept.put(first)
    with Spool(tmp_path) as kept:
        (entry,) = kept.entries(10, 10**6)
        assert entry.event == first
        flush(kept, log)
    with Spool(tmp_path) as kept:
        assert kept.pending == 0
        assert kept.put(event("b")) == 1


@pytest.mark.parametrize("how", ["lost", "last lost"])
def test_what_may_have_been_sent_is_looked_up_and_not_sent_twice(
    tmp_path: Path, log: Direct, how: str
) -> None:
    log.fails = [how]
    # A heartbeat is legal any number of times: only looking it up can tell.
    log.producer.append("v1.job.scheduled", "run", {"build_request_id": "b"})
    with Spool(tmp_path) as kept:
        for _ in range(3):
            kept.put(event("run", payload=JobRunning()))
        done = flush(kept, log)
        assert isinstance(done.error, OutcomeUnknown)
        assert done.left == (3 if how == "lost" else 1)
    # Another process goes on.
    with Spool(tmp_path) as kept:
        done = flush(kept, log)
        assert (done.left, done.refused) == (0, 0)
    assert log.subjects() == ["run"] * 4
    assert log.looked_up == done.sent


def test_what_did_not_reach_the_log_is_not_looked_up(tmp_path: Path, log: Direct) -> None:
    log.fails = ["away"]
    with Spool(tmp_path) as kept:
        kept.put(event())
        assert isinstance(flush(kept, log).error, Unavailable)
        assert flush(kept, log).sent == 1
    assert log.looked_up == 0


def test_refused_events_are_recorded_and_the_rest_goes_on(tmp_path: Path, log: Direct) -> None:
    told: list[tuple[str, object]] = []
    with Spool(tmp_path) as kept:
        for ref in ("a", "b"):
            kept.put(event(ref, payload=PartitionStale(reason="old")))
            kept.put(event(ref))
        done = flush(
            kept, log, on_outcome=lambda e, r: told.append((e.event.subject_id, type(r).__name__))
        )
        assert (done.sent, done.refused, done.left) == (2, 2, 0)
        first, second = kept.conflicts()
        assert kept.status().conflicts == 2
    assert told == [(r, t) for r in ("a", "b") for t in ("IllegalTransition", "Receipt")]
    error = first.error()
    assert isinstance(error, IllegalTransition)
    assert error.allowed == ("v1.partition.requested", "v1.partition.observed")
    assert first.event["event_type"] == "v1.partition.stale"
    assert second.event["subject_id"] == "b"


def test_a_refusal_is_recorded_once_whoever_dies_after_it(tmp_path: Path, log: Direct) -> None:
    with Spool(tmp_path) as kept:
        kept.put(event(payload=PartitionStale()))
        before = (tmp_path / "events.spool").read_bytes()
        flush(kept, log)
    # The journal as it is where the process dies between the record and the mark; and a torn line.
    (tmp_path / "events.spool").write_bytes(before)
    with (tmp_path / "events.conflicts").open("ab") as file:
        file.write(b'{"number":')
    with Spool(tmp_path) as kept:
        assert flush(kept, log).refused == 1
        assert [refusal.number for refusal in kept.conflicts()] == [0]


def test_who_may_not_write_keeps_the_events(tmp_path: Path, log: Direct) -> None:
    log.fails = ["forbidden"]
    with Spool(tmp_path) as kept:
        kept.put(event())
        done = flush(kept, log)
        assert isinstance(done.error, Forbidden)
        assert done.left == 1
        assert flush(kept, log).sent == 1


def test_a_batch_that_is_refused_as_such_goes_one_by_one(tmp_path: Path, log: Direct) -> None:
    log.fails = ["too large"]
    with Spool(tmp_path) as kept:
        for n in range(3):
            kept.put(event(f"a/{n}"))
        assert flush(kept, log).sent == 3
    assert log.batches[0] == 1
    assert log.subjects() == ["a/0", "a/1", "a/2"]


def test_another_log_and_a_shorter_one_are_refused(tmp_path: Path, log: Direct) -> None:
    log.producer.append("v1.partition.observed", "x")
    with Spool(tmp_path) as kept:
        kept.put(event())
        flush(kept, log)
        kept.put(event("b"))
        with pytest.raises(LogReplaced):
            flush(kept, Direct())
        shorter = Direct()
        shorter.log = MemoryLog("restored")
        shorter.log.initialize(log_id=log.log.end().log_id)
        with pytest.raises(LogTruncated):
            flush(kept, shorter)
        assert kept.pending == 1
        assert flush(kept, log).sent == 1


def test_a_log_that_lost_its_end_between_two_batches_is_noticed(
    tmp_path: Path, log: Direct
) -> None:
    with Spool(tmp_path) as kept:
        for n in range(5):
            kept.put(event(f"a/{n}"))
        flush(kept, log)
        restored = Direct()
        kept.put(event("b"))
        with pytest.raises(LogTruncated):
            flush(kept, restored, is_met=True)


def test_it_has_a_bound(tmp_path: Path) -> None:
    with Spool(tmp_path, bytes_max=1_500) as kept:
        for _ in range(5):
            kept.put(event())
        with pytest.raises(Overloaded, match="full"):
            kept.put(event("a/" + "long" * 250))
        assert kept.pending == 5


def test_what_has_left_makes_room(
    tmp_path: Path, log: Direct, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool, "COMPACT_BYTES", 2_000)
    refs = [f"a/{n}" for n in range(100)]
    with Spool(tmp_path, bytes_max=10_000) as kept, Spool(tmp_path) as other:
        for n, ref in enumerate(refs):
            (kept if n % 2 else other).put(event(ref))
            if n % 10 == 9:
                assert flush(kept if n % 20 == 9 else other, log).left == 0
        assert kept.status().pending == other.status().pending == 0
    assert log.subjects() == refs
    assert (tmp_path / "events.spool").stat().st_size < 10_000


def test_a_rewriting_keeps_what_may_have_been_sent(
    tmp_path: Path, log: Direct, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool, "COMPACT_BYTES", 200)
    log.fails = ["last lost"]
    with Spool(tmp_path) as kept:
        for n in range(10):
            kept.put(event(f"a/{n}"))
        flush(kept, log)
    with Spool(tmp_path) as kept:
        assert flush(kept, log).sent == 1
    assert log.looked_up == 1
    assert log.subjects() == [f"a/{n}" for n in range(10)]


def test_torn_tails_are_cut_wherever_they_were_torn(tmp_path: Path, seed: int) -> None:
    with Spool(tmp_path) as kept:
        kept.put(event("a"))
        whole = kept.status().pending_bytes
        kept.put(event("b"))
    path = tmp_path / "events.spool"
    data = path.read_bytes()
    first = HEADER_BYTES + whole
    draw = random.Random(seed)
    for cut in [first, first + 1, len(data) - 1, *draw.sample(range(first, len(data)), 20)]:
        path.write_bytes(data[:cut] + draw.randbytes(draw.choice([0, 3, 700])))
        with Spool(tmp_path) as kept:
            assert [e.event.subject_id for e in kept.entries(9, 10**6)] == ["a"]
            kept.put(event("c"))
        with Spool(tmp_path) as kept:
            assert [e.event.subject_id for e in kept.entries(9, 10**6)] == ["a", "c"]


def test_damage_is_no_torn_tail(tmp_path: Path, seed: int) -> None:
    with Spool(tmp_path) as kept:
        kept.put(event("a"))
        whole = kept.status().pending_bytes
        kept.put(event("b"))
    path = tmp_path / "events.spool"
    data = bytearray(path.read_bytes())
    data[random.Random(seed).randrange(HEADER_BYTES, HEADER_BYTES + whole)] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(Corrupt, match="damaged"):
        Spool(tmp_path)
    assert path.read_bytes() == data


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"something else, and long enough" * 9, Corrupt),
        (b"BELOGSPL\x02\0" + bytes(90), NewerFormat),
    ],
)
def test_files_of_others_are_left_alone(
    tmp_path: Path, data: bytes, error: type[BelogError]
) -> None:
    path = tmp_path / "events.spool"
    path.write_bytes(data)
    with pytest.raises(error):
        Spool(tmp_path)
    assert path.read_bytes() == data


def test_one_process_sends_at_a_time(tmp_path: Path, log: Direct) -> None:
    with Spool(tmp_path) as kept, Spool(tmp_path) as other:
        kept.put(event())
        with kept.sending() as is_ours:
            assert is_ours
            done = flush(other, log)
            assert (done.is_ours, done.left) == (False, 1)
        assert flush(other, log).sent == 1
        assert kept.pending == 0


FULL = """
import resource, signal, sys
from pathlib import Path
from belog.client import Spool
from belog.schemas.errors import Unavailable
from tests.unit.test_client_spool import event
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
kept = Spool(sys.argv[1])
kept.put(event("a"))
resource.setrlimit(resource.RLIMIT_FSIZE, (kept.status().pending_bytes + 150,) * 2)
try:
    kept.put(event("b"))
except Unavailable as error:
    print(kept.pending, error.hint)
"""


def test_a_full_disk_is_said_and_harms_nothing(tmp_path: Path) -> None:
    assert resource.RLIMIT_FSIZE
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", FULL, tmp_path],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "1 is there room, and the right to write?\n"
    with Spool(tmp_path) as kept:
        assert kept.pending == 1


def test_a_closed_one_says_so(tmp_path: Path) -> None:
    kept = Spool(tmp_path)
    kept.close()
    kept.close()
    with pytest.raises(Closed):
        kept.put(event())
