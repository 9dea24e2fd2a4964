"""A log that is a Kafka topic of one partition: index and position are the record's offset.

Order decides: an append says afterwards where the record landed, and who reads judges it there. So
records may be in the topic that change nothing (a lost race, a repeat); `read` and its like never
show them, and compaction removes those that a tombstone names.

Topics are made by `belog topic create` (`belog.storage.kafka_topic`), never by opening a log.
Opening checks the settings that the log's promises rest on. A topic that was deleted, recreated or
cut under a running log is an error of its own, never a silent jump.

Costs: reading on from where the last read ended costs nothing but the records, plus one question to
the broker where the log ends; a read elsewhere moves a consumer, a few milliseconds. The first
judged read folds the whole log. A filter is applied after reading, so it does not make reads
cheaper, and `get_by_id` reads the log but for its last 65,536 events; `get` is a read elsewhere.
`belog.storage.indexed` answers all three from a local index.
"""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Final, TypeVar
from uuid import UUID

from belog.schemas.envelope import Event, StoredEvent, encode_event
from belog.schemas.errors import (
    BelogError,
    Closed,
    Diverged,
    IndexConflict,
    InvalidConfiguration,
    InvalidUri,
    LogReplaced,
    LogTruncated,
    NotFound,
    ReplicaRefused,
    Unavailable,
    Unsupported,
)
from belog.schemas.filters import ALL, EventFilter
from belog.schemas.fold import Fold, Outcome, Record
from belog.schemas.limits import PAGE_EVENTS_MAX
from belog.schemas.replica import REPLICA_HEADER
from belog.storage.creation import (
    check_copied,
    check_identity,
    log_created,
    new_uuid,
    now_us,
    refuse_replica_append,
    require_end,
)
from belog.storage.horizon import steps_of
from belog.storage.interface import (
    SCAN_RECORDS_MAX,
    Capabilities,
    CopiedRecord,
    EventPage,
    LogEnd,
    LogIdentity,
    OrderedLog,
    Receipt,
    Removal,
    SendReport,
    Series,
    SeriesReports,
    Serving,
    Statistics,
    check_batch,
)
from belog.storage.judged import JudgedView
from belog.storage.kafka_copy import ReplicaCopy
from belog.storage.kafka_cursor import Cursors, PositionLostError
from belog.storage.kafka_errors import LOGGER
from belog.storage.kafka_sender import Sender, new_keys, send_all
from belog.storage.kafka_target import KafkaTarget, parse_uri
from belog.storage.kafka_topic import TopicAdmin, TopicReport
from belog.storage.recount import recounted

__all__ = ["KafkaLog"]

IDENTITY_RECORDS_MAX: Final = 1_000
"""Records looked at for the one that names the log. It is the first accepted one, so only garbage
that raced with the log's creation can stand before it."""

EXPLAIN_S: Final = 1.0
"""How long a lost position may wait for its explanation, seconds: the read itself has waited for a
broker before, and one that is there answers in milliseconds."""

TOPIC_CHECK_S: Final = 5.0
"""How often a log that is read asks whether its topic is still the same, seconds: a topic recreated
and grown past the reader's position shows in nothing else. The question costs about 2 ms."""

TOPIC_ANSWER_S: Final = 2.0
"""How long that question may hold up what was read, seconds. After an outage records may be read
before the cluster's controller answers; what is not answered is asked again."""

T = TypeVar("T")


class KafkaLog(OrderedLog):
    """See the module's docstring. Thread-safe; of no use in a process forked after opening."""

    capabilities = Capabilities(conditional_append=False, explicit_index=False, vacuum=True)

    def __init__(self, target: KafkaTarget) -> None:
        """Name a topic; nothing is connected before `initialize` or `identify`."""
        self.name = target.name
        self._target = target
        self._lock = threading.RLock()
        self._admin: TopicAdmin | None = None
        self._topic: TopicReport | None = None
        self._topic_checked = 0.0
        self._cursors = Cursors(target)
        self._sender = Sender(target)
        self._identity: LogIdentity | None = None
        self._closed = False
        self._view = JudgedView(self.scan, self.name)
        self._copy = ReplicaCopy(self._sender, self._view, self.scan, self.tombstone)

    # --- life

    def initialize(
        self,
        *,
        instance: str = "local",
        log_id: UUID | None = None,
        replica: bool = False,
        empty: bool = False,
    ) -> LogIdentity:
        """See `EventLog.initialize`. Ends within about ten seconds where no broker answers.

        The topic must be there. Of several that initialize an empty one at once, the first whose
        event lands names the log, and all others take that name.

        Raises:
            NotFound: There is no such topic; the hint is the command that makes it.
            InvalidConfiguration: A new log that is to be copied to needs its origin's `log_id`.
            InvalidUri: The topic holds something else.
        """
        with self._lock:
            self._check_open()
            found = self._identity or self._find()
            if found is None and (replica or empty):
                # Nothing is kept of it before the first record is copied.
                found = self._copy_of(instance, log_id, is_replica=replica)
            elif found is None:
                found = self._create(instance, log_id)
            check_identity(found, log_id, replica=replica, name=self.name)
            self._identity = found
            return found

    def identify(self) -> LogIdentity | None:
        """See `EventLog.identify`. A replica that nothing was copied to yet is no log."""
        with self._lock:
            self._check_open()
            return self._identity or self._find()

    def topic(self) -> TopicReport:
        """Return what the topic was like when it was opened, with warnings.

        Raises:
            As `belog.storage.kafka_topic.check_topic`.
        """
        with self._lock:
            self._check_open()
            if self._topic is None:
                self._admin = self._admin or TopicAdmin(self._target)
                self._topic = self._admin.report()
                self._topic_checked = time.monotonic()
                for warning in self._topic.warnings:
                    LOGGER.warning("%s: %s", self.name, warning)
            return self._topic

    def _find(self) -> LogIdentity | None:
        """Read who the log is, None where the topic holds nothing yet."""
        self.topic()
        fold = Fold()
        foreign = False
        while fold.next_position < IDENTITY_RECORDS_MAX:
            records = self._read(fold.next_position, IDENTITY_RECORDS_MAX // 10)
            for record in records:
                outcome = fold.apply(record)
                if fold.log_id is not None:
                    return LogIdentity(fold.log_id, _instance_of(outcome), fold.is_replica)
                foreign = foreign or record.value is not None
            if not records:
                break
        if foreign:
            msg = "the topic holds records, and none of them begins a log"
            raise InvalidUri(msg, log=self.name, hint="name an empty topic")
        return None

    def _copy_of(self, instance: str, log_id: UUID | None, *, is_replica: bool) -> LogIdentity:
        if log_id is None:
            msg = "a new copy on Kafka needs the log_id of its origin"
            raise InvalidConfiguration(msg, log=self.name)
        return LogIdentity(log_id, instance, is_replica)

    def _create(self, instance: str, log_id: UUID | None) -> LogIdentity:
        own = log_id or new_uuid()
        (key,) = new_keys(1)
        value = encode_event(log_created(own, instance, now_us()))
        (report,) = self._send_all([key], [value])
        if report.error is not None:
            raise report.error
        found = self._find()
        if found is None:
            msg = f"the log's first event was written at {report.position} and is not there"
            raise LogTruncated(msg, log=self.name)
        if found.log_id != own:
            self.tombstone([key])
        return found

    def close(self) -> None:
        """See `EventLog.close`. What was sent and not reported yet is reported as unknown."""
        self._closed = True
        admin = self._admin
        if admin is not None:
            admin.close()
        self._sender.close()
        self._cursors.close()

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the log was closed", log=self.name)

    def _check_initialized(self) -> LogIdentity:
        self._check_open()
        if self._identity is None:
            msg = "the log was not initialized"
            raise NotFound(msg, log=self.name, hint="call initialize() first")
        return self._identity

    # --- raw records

    def next_position(self) -> int:
        """See `EventLog.next_position`: the topic's high watermark."""
        self._check_initialized()
        reached = self._sender.acknowledged
        return self._explained(lambda: self._cursors.bounds(reached)[1])

    def scan(self, since_position: int, limit: int = SCAN_RECORDS_MAX) -> list[Record]:
        """See `EventLog.scan`. Returns fewer records than `limit` only where the log ends.

        Raises:
            LogReplaced: The topic is another one than before.
            LogTruncated: The position was deleted, or the topic is shorter than it was.
            Unavailable: No broker answers, after about ten seconds. Retriable.
        """
        return self._checked(since_position, self.scan_raw(since_position, limit))

    def scan_raw(self, since_position: int, limit: int) -> list[Record]:
        """See `Vacuumable.scan_raw`."""
        self._check_initialized()
        records = self._read(since_position, limit)
        self._check_same_topic()
        return records

    def _read(self, since_position: int, limit: int) -> list[Record]:
        reached = self._sender.acknowledged
        return self._explained(lambda: self._cursors.read(since_position, limit, reached))

    def wait(self, position: int, timeout_s: float) -> bool:
        """See `EventLog.wait`; errors as for `scan`. Ends soon after `close`."""
        self._check_initialized()
        found = self._explained(lambda: self._cursors.wait(position, timeout_s))
        self._check_same_topic()
        return found

    def _explained(self, read: Callable[[], T]) -> T:
        """Read, and say why where a position is not there any more."""
        try:
            return read()
        except PositionLostError as lost:
            self._check_open()
            raise self._explain(lost) from lost

    def _explain(self, lost: PositionLostError) -> BelogError:
        if (replaced := self._replaced(EXPLAIN_S)) is not None:
            return replaced
        try:
            low, end = self._cursors.bounds_now()
        except PositionLostError as error:
            return Unavailable(f"the topic cannot be read now: {error}", log=self.name)
        if lost.position < low:
            msg = f"records before {low} were deleted, {lost.position} among them"
            hint = "a log's topic must not be cut: start from a snapshot at or past that index"
            return LogTruncated(msg, log=self.name, index=low, hint=hint)
        if lost.position > end:
            msg = f"the log ends at {end}, and reached {lost.position} before"
            hint = "acknowledged events were lost: compare with a replica or a snapshot"
            return LogTruncated(msg, log=self.name, index=end, hint=hint)
        return Unavailable(f"the topic cannot be read now: {lost}", log=self.name)

    def _check_same_topic(self) -> None:
        now = time.monotonic()
        if now - self._topic_checked < TOPIC_CHECK_S:
            return
        self._topic_checked = now
        try:
            replaced = self._replaced(TOPIC_ANSWER_S)
        except Unavailable:
            # Nobody recreates a topic while no broker answers; asked again next time.
            return
        if replaced is not None:
            raise replaced

    def _replaced(self, answer_s: float) -> LogReplaced | None:
        """Return the error for a topic that is not the one that was opened.

        Raises:
            Unavailable: No answer within `answer_s`.
        """
        admin, topic = self._admin, self._topic
        if admin is None or topic is None:
            return None
        hint = "do not go on: the log that was open is gone; compare log ids before reopening"
        try:
            topic_id = admin.topic_id(answer_s)
        except NotFound:
            return LogReplaced("the topic was deleted", log=self.name, hint=hint)
        if topic_id == topic.topic_id:
            return None
        msg = f"the topic was deleted and made anew (id {topic_id}, was {topic.topic_id})"
        return LogReplaced(msg, log=self.name, hint=hint)

    # --- writing

    def send(self, key: bytes, value: bytes, on_report: Callable[[SendReport], None]) -> None:
        """See `OrderedLog.send`.

        An error of a report is:

        - `OutcomeUnknown` where no acknowledgement came within the delivery time-out, or the log
          was closed before it came;
        - `LogTruncated` where the record landed before one that was acknowledged earlier: the
          topic was recreated or cut;
        - `LimitExceeded`, `Misconfigured` or `NotFound` where the broker refused the record.

        Raises:
            LimitExceeded: The record is larger than a log's topic has to take.
        """
        self._sender_at_hand().send(key, value, on_report)

    def series(self, first: int, reports: SeriesReports) -> Series:
        """See `OrderedLog.series`."""
        return self._sender_at_hand().series(first, reports)

    def _sender_at_hand(self) -> Sender:
        """Return the sender of a log that may be written to."""
        if self._identity is None or self._closed:
            self._check_initialized()
        self._cursors.rest_idle()
        return self._sender

    def serving(self) -> AbstractContextManager[Serving]:
        """See `OrderedLog.serving`."""
        return self._sender.serving()

    def tombstone(self, keys: Sequence[bytes]) -> None:
        """See `OrderedLog.tombstone`. Returns when all are acknowledged.

        Raises:
            OutcomeUnknown: Some may not have been written; repeat the call. Retriable.
        """
        self._check_open()
        for report in self._send_all(keys, [None] * len(keys)):
            if report.error is not None:
                raise report.error

    def _send_all(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> list[SendReport]:
        return send_all(self._sender, keys, values)

    def append_batch(
        self, events: Sequence[Event], *, at: int | None = None, atomic: bool = False
    ) -> list[Receipt | BelogError]:
        """See `EventLog.append_batch`. Records of other writers may come to stand in between.

        Raises:
            Unsupported: `at`, or `atomic` with several events.
        """
        check_batch(events)
        refuse_replica_append(self._check_initialized(), self.name)
        if at is not None or (atomic and len(events) > 1):
            msg = f"a Kafka log cannot honour {'at' if at is not None else 'atomic'}"
            hint = "append through belog.producers, which judges by where the record landed"
            raise Unsupported(msg, log=self.name, hint=hint)
        reports = self._send_all(new_keys(len(events)), [encode_event(event) for event in events])
        return [
            report.error or Receipt(report.position, report.created_at, event.event_id)
            for event, report in zip(events, reports, strict=True)
        ]

    def copy_records(self, records: Sequence[CopiedRecord], *, after: int) -> None:
        """See `EventLog.copy_records`. Not atomic; returns when all are acknowledged.

        A replica's records are judged where they land: against a second sink that writes at the
        same time, those of one of the two are void. A primary log's records (migration) must land
        at their own index; positions between them are filled with tombstones. Their ingest time
        becomes that of the copy.

        Raises:
            IndexConflict: The log's last record is another one, or another sink came between.
            Diverged: Somebody else wrote while a primary log was copied; start with a new topic.
            ReplicaRefused: Records of a replica for a primary log, or the reverse.
        """
        check_copied(records, after)
        is_replica = self._check_initialized().is_replica
        for record in records:
            if (record.value[: len(REPLICA_HEADER)] == REPLICA_HEADER) != is_replica:
                msg = "records of a replica belong into a replica, others into a primary log"
                raise ReplicaRefused(msg, log=self.name, index=record.index)
        if not records:
            return
        if is_replica:
            self._copy_to_replica(records, after)
        else:
            self._copy_to_primary(records, after)

    def _copy_to_replica(self, records: Sequence[CopiedRecord], after: int) -> None:
        self._copy.copy(records, after)

    def _copy_to_primary(self, records: Sequence[CopiedRecord], after: int) -> None:
        next_position = self.next_position()
        if next_position != after + 1:
            msg = f"the log's last index is {next_position - 1}, not {after}"
            raise IndexConflict(msg, next_idx=next_position, log=self.name)
        for start in range(next_position, records[-1].index + 1, SCAN_RECORDS_MAX):
            self._copy_span(records, start, min(start + SCAN_RECORDS_MAX, records[-1].index + 1))

    def _copy_span(self, records: Sequence[CopiedRecord], start: int, end: int) -> None:
        """Write every position of a span: the records that have one, tombstones elsewhere."""
        values: list[bytes | None] = [None] * (end - start)
        for record in records:
            if start <= record.index < end:
                values[record.index - start] = record.value
        reports = self._send_all(new_keys(len(values)), values)
        for index, report in enumerate(reports, start):
            if report.error is not None:
                raise report.error
            if report.position != index:
                msg = f"the record for index {index} landed at {report.position}"
                raise Diverged(msg, log=self.name, hint="copy into a new topic, alone")

    def remove(self, removals: Sequence[Removal]) -> None:
        """See `Vacuumable.remove`; returns when the tombstones are acknowledged."""
        for step in steps_of(removals):
            self.tombstone([removal.key for removal in step if removal.key is not None])

    # --- events

    def read(
        self, since_idx: int = 0, wanted: EventFilter = ALL, limit: int = PAGE_EVENTS_MAX
    ) -> EventPage:
        """See `EventLog.read`; costs as the module says."""
        self._check_initialized()
        return self._view.read(since_idx, wanted, limit)

    def get(self, index: int) -> StoredEvent | None:
        """See `EventLog.get`."""
        self._check_initialized()
        return self._view.get(index)

    def get_by_id(self, event_id: bytes) -> StoredEvent | None:
        """See `EventLog.get_by_id`; past the window of recent ids it reads the log."""
        self._check_initialized()
        return self._view.get_by_id(event_id)

    def wait_for_index(self, index: int, timeout_s: float) -> bool:
        """See `EventLog.wait_for_index`."""
        self._check_initialized()
        return self.wait(self._view.position_of(index), timeout_s)

    def end(self) -> LogEnd:
        """See `EventLog.end`."""
        self._check_initialized()
        return require_end(self._view.end(), self.name)

    def statistics(self) -> Statistics:
        """See `EventLog.statistics`."""
        self._check_initialized()
        replica = self._check_initialized().is_replica
        return recounted(self, self._view.statistics(), is_replica=replica)


def _instance_of(outcome: Outcome | None) -> str:
    body = outcome.event.body() if outcome is not None and outcome.event is not None else {}
    instance = body.get("instance")
    return instance if isinstance(instance, str) else ""


def from_uri(uri: str) -> KafkaLog:
    """See `belog.storage.factory`: `kafka://host:port[,host:port]/topic?setting=value`."""
    return KafkaLog(parse_uri(uri))
