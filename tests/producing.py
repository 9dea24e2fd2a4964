"""What tests of producers share: logs of every backend, the ways to append, and an own judgement.

The judgement (`legal_path`, `assert_told_the_truth`) restates the state diagrams as data of its own
and reads raw records, so that it does not follow the code under test into its faults.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pytest

from belog.producers import Pending, Producer
from belog.schemas.envelope import Event, decode_event
from belog.schemas.errors import BelogError, Conflict, Corrupt
from belog.storage import EventLog, Receipt, open_log
from belog.storage.interface import SCAN_RECORDS_MAX
from belog.storage.kafka_topic import create_topic
from belog.storage.memory import MemoryLog
from tests.servers import Broker

BACKENDS = [
    "memory",
    "sqlite",
    "file",
    pytest.param("kafka", marks=pytest.mark.integration),
]

Answer = Receipt | BelogError


class Place:
    """One log that this test alone uses; each `open` is another object over it."""

    def __init__(self, backend: str, request: pytest.FixtureRequest, folder: Path) -> None:
        self.backend = backend
        self._opened: list[EventLog] = []
        self._memory = MemoryLog()
        self.uri = "memory:"
        if backend == "kafka":
            broker: Broker = request.getfixturevalue("broker")
            self.uri = f"{broker.uri}/{request.getfixturevalue('topic_name')}"
            create_topic(self.uri)
        elif backend == "sqlite":
            self.uri = f"sqlite:///{folder / 'log.db'}"
        elif backend == "file":
            self.uri = f"file://{folder / 'log'}"

    def open(self, settings: str = "") -> EventLog:
        """Return an initialized log, where one file or memory is written by one object that one; it
        is closed with the place."""
        if self._opened and self.backend in {"memory", "file"}:
            return self._opened[0]
        log = self._memory if self.backend == "memory" else open_log(self.uri + settings)
        self._opened.append(log)
        log.initialize()
        return log

    def close(self) -> None:
        for log in self._opened:
            log.close()


# --- the doors of a producer


def by_append(producer: Producer, event: Event) -> Answer:
    return _tried(
        lambda: producer.append(
            event.event_type,
            event.subject_id,
            event.body(),
            event_id=event.event_id,
            occurred_at=event.occurred_at,
            subject_kind=event.subject_kind,
            expected=event.expected,
        )
    )


def by_append_event(producer: Producer, event: Event) -> Answer:
    return _tried(lambda: producer.append_event(event))


def by_batch(producer: Producer, event: Event) -> Answer:
    (answer,) = producer.append_batch([event])
    return answer


def by_submit(producer: Producer, event: Event) -> Answer:
    return _tried(lambda: producer.submit_event(event).result())


def _tried(call: Callable[[], Receipt]) -> Answer:
    try:
        return call()
    except BelogError as error:
        return error


def submitted(producer: Producer, event: Event) -> Pending | BelogError:
    try:
        return producer.submit_event(event)
    except BelogError as error:
        return error


def settled(pending: Pending | BelogError) -> Answer:
    return pending if isinstance(pending, BelogError) else _tried(pending.result)


DOORS = [by_append, by_append_event, by_batch, by_submit]


# --- a judgement of its own

# Per kind and event: the states it may come in ("" is never seen), and the state it leads to; "="
# stays. Written down from the documentation, not derived from the tables under test.
DIAGRAM: Mapping[str, tuple[str, str]] = {
    "v1.build.received": ("∅", "received"),
    "v1.build.planning": ("received", "planning"),
    "v1.build.analysis_completed": ("planning", "analysis_completed"),
    "v1.build.executing": ("analysis_completed", "executing"),
    "v1.build.completed": ("analysis_completed executing", "completed"),
    "v1.build.failed": ("received planning analysis_completed executing", "failed"),
    "v1.build.cancelled": ("received planning analysis_completed executing", "cancelled"),
    "v1.job.scheduled": ("∅", "scheduled"),
    "v1.job.skipped": ("∅ scheduled", "skipped"),
    "v1.job.running": ("scheduled running", "running"),
    "v1.job.completed": ("running", "completed"),
    "v1.job.failed": ("scheduled running", "failed"),
    "v1.job.cancelled": ("scheduled running", "cancelled"),
    "v1.partition.requested": (
        "∅ available failed stale removed scheduled building delegated",
        "requested",
    ),
    "v1.partition.joined": ("requested scheduled building delegated", "="),
    "v1.partition.scheduled": ("requested", "scheduled"),
    "v1.partition.building": ("scheduled", "building"),
    "v1.partition.available": ("building delegated", "available"),
    "v1.partition.delegated": ("requested", "delegated"),
    "v1.partition.failed": ("requested scheduled building delegated", "failed"),
    "v1.partition.stale": ("available", "stale"),
    "v1.partition.removed": ("available stale failed", "removed"),
    "v1.partition.observed": ("∅ available stale failed removed", "available"),
}
UNDER_WAY = {"requested", "scheduled", "building", "delegated"}
OWNERLESS = {"v1.partition.stale", "v1.partition.removed", "v1.partition.observed"}


class Judgement:
    """Which records of a log count, by the documentation alone. Assumes ids that are few enough to
    be remembered, and no foreign records but garbage."""

    def __init__(self, log: EventLog) -> None:
        self.accepted: dict[bytes, int] = {}
        self.landed: dict[bytes, list[int]] = defaultdict(list)
        self.paths: dict[str, list[str]] = defaultdict(list)
        self.events: list[tuple[int, Event]] = []
        self._states: dict[str, tuple[str, int]] = {}
        self._owners: dict[str, str] = {}
        position = 0
        while records := log.scan(position, SCAN_RECORDS_MAX):
            for record in records:
                position = record.position + 1
                if record.value is None:
                    continue
                try:
                    event = decode_event(record.value)
                except Corrupt:
                    continue
                self._judge(record.position, event)

    def _judge(self, index: int, event: Event) -> None:
        self.landed[event.event_id].append(index)
        if event.event_id in self.accepted:
            return
        state, last = self._states.get(event.subject, ("∅", -1))
        if event.expected not in {None, last}:
            return
        if event.subject_kind == "system":
            after = "open"
        else:
            sources, after = DIAGRAM[event.event_type]
            if state not in sources.split():
                return
            after = state if after == "=" else after
        if event.subject_kind == "partition" and event.event_type not in OWNERLESS:
            build = str(event.body()["build_request_id"])
            if state not in UNDER_WAY:
                self._owners[event.subject] = build
            elif build != self._owners[event.subject] and "joined" not in event.event_type:
                return
        self._states[event.subject] = (after, index)
        self.accepted[event.event_id] = index
        self.paths[event.subject].append(event.event_type)
        self.events.append((index, event))

    def state(self, subject: str) -> str:
        return self._states.get(subject, ("∅", -1))[0]


def assert_told_the_truth(judged: Judgement, answers: Iterable[tuple[Event, Answer]]) -> None:
    """Compare what producers said, one answer for each event id, with what the log holds."""
    for event, answer in answers:
        index = judged.accepted.get(event.event_id)
        if isinstance(answer, Receipt):
            assert answer.event_id == event.event_id
            assert index == answer.index, f"{event} was acknowledged at {answer.index}"
        elif isinstance(answer, Conflict):
            assert index is None, f"{event} was refused with {answer}, and counts"
        else:
            raise answer
