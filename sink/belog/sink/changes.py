"""The tables as a feed of changes, for programs that know Kafka and Avro but not this project.

Every change of a partition's or a build's row becomes one record on a compacted topic, keyed by the
partition's ref or the build's id: what the row was before, what it is now, and by which event. The
topic so holds the table itself (the newest record of each key) and, as far as compaction has not
come, how it went.

The position is what the topics hold: each record names its event's index, and a start goes on
behind the last one. What an event changes is a function of the log alone, so a second process, or
one that was cut off, writes the same records and no others. Readers take a record only where its
index is above that of the one they have.
"""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final, Literal, cast
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from belog.processors.rows import BuildRow, PartitionRow, Row
from belog.processors.snapshots import restore_tables
from belog.processors.table_fold import RowChange, TableFold
from belog.schemas.avro_structs import StructCodec
from belog.schemas.errors import BelogError, Diverged, InvalidUri, LogReplaced, NotFound
from belog.schemas.fold import Fold, Outcome, Record
from belog.schemas.limits import EVENT_BYTES_MAX
from belog.storage.interface import FOLLOW_WAIT_S, SCAN_RECORDS_MAX, EventLog
from belog.storage.kafka_keyed import KeyedTopic
from belog.storage.snapshots import SnapshotStore

__all__ = ["BuildChange", "ChangeFeed", "ChangeProgress", "PartitionChange", "topic_uris"]

EVENT_ROWS_MAX: Final = 1_000
"""Records at a topic's end that are looked at to go on: far more than one event changes rows of one
kind, which is one or two."""

RETRY_S: Final = 1.0
"""Pause after an error that may pass, seconds."""

PUT_RECORDS_MAX: Final = 2_000
"""Records written in one run: some megabytes in flight."""

Op = Literal["create", "update"]


class PartitionChange(Struct, frozen=True, kw_only=True):
    """One event's change of a partition's row."""

    op: Op
    log_id: str
    index: int
    """Of the event."""
    created_at: int
    """Its ingest time, microseconds since the epoch, UTC."""
    event_id: bytes
    event_type: str
    before: PartitionRow | None = None
    before_left_out: bool = False
    """The record would have been larger than a topic takes."""
    after: PartitionRow


class BuildChange(Struct, frozen=True, kw_only=True):
    """One event's change of a build's row."""

    op: Op
    log_id: str
    index: int
    """Of the event."""
    created_at: int
    """Its ingest time, microseconds since the epoch, UTC."""
    event_id: bytes
    event_type: str
    before: BuildRow | None = None
    before_left_out: bool = False
    """The record would have been larger than a topic takes."""
    after: BuildRow


ChangeRecord = PartitionChange | BuildChange


class ChangeProgress(Struct, frozen=True):
    """How far a feed is."""

    next_idx: int
    """Index of the first event whose changes are not on the topics."""
    written: int
    """Records written since the start."""


@cache
def codec_of(kind: type[ChangeRecord]) -> StructCodec:
    """Return the codec of a kind of change."""
    return StructCodec(kind)


def topic_uris(uri: str) -> tuple[str, str]:
    """Return the URIs of the topics of partitions and of builds.

    >>> topic_uris("kafka://host:9092/tables?linger.ms=5")[0]
    'kafka://host:9092/tables.partitions?linger.ms=5'

    Raises:
        InvalidUri: It is no `kafka:` URI with a name.
    """
    parts = urlsplit(uri)
    if parts.scheme != "kafka" or len(parts.path) < 2:
        msg = "changes go to Kafka"
        raise InvalidUri(
            msg, hint="kafka://host:port/NAME, for the topics NAME.partitions, .builds"
        )
    partitions, builds = (
        parts._replace(path=f"{parts.path}.{kind}").geturl() for kind in ("partitions", "builds")
    )
    return partitions, builds


_KINDS: Final[Mapping[type[Row], type[ChangeRecord]]] = {
    PartitionRow: PartitionChange,
    BuildRow: BuildChange,
}


def change_of(log_id: str, outcome: Outcome, change: RowChange) -> ChangeRecord | None:
    """Return the record of a row's change; None for rows of other kinds."""
    kind = _KINDS.get(type(change.after))
    if kind is None:
        return None
    event = outcome.event
    assert event is not None  # noqa: S101 - it has changed a row
    # Both rows are of the one kind that the record is for.
    before, after = cast("tuple[Any, Any]", (change.before, change.after))
    return kind(
        op="create" if before is None else "update",
        log_id=log_id,
        index=outcome.index,
        created_at=outcome.created_at,
        event_id=event.event_id,
        event_type=event.event_type,
        before=before,
        after=after,
    )


def encoded(record: ChangeRecord) -> tuple[bytes, bytes]:
    """Return key and value; without the row before where both are too large for a topic."""
    codec = codec_of(type(record))
    value = codec.encode(record)
    if len(value) > EVENT_BYTES_MAX and record.before is not None:
        value = codec.encode(replace(record, before=None, before_left_out=True))
    return record.after.row_id.encode(), value


class _Place:
    """Where one topic's records go on: behind the last event that it holds whole."""

    def __init__(self, topic: KeyedTopic, kind: type[ChangeRecord]) -> None:
        self.topic = topic
        self.kind = kind
        self.index = -1
        self.keys: frozenset[bytes] = frozenset()
        self.log_id: str | None = None

    def look(self) -> None:
        """Read the topic's end.

        Raises:
            Corrupt: It holds something else.
        """
        self.index, self.keys, self.log_id = -1, frozenset(), None
        found = [(r.key, codec_of(self.kind).decode(r.value)) for r in self._tail() if r.value]
        if found:
            last = found[-1][1]
            self.index, self.log_id = int(last["index"]), str(last["log_id"])
            self.keys = frozenset(k for k, c in found if c["index"] == self.index and k is not None)

    def _tail(self) -> Iterable[Record]:
        return self.topic.tail(EVENT_ROWS_MAX)

    def lacks(self, record: ChangeRecord) -> bool:
        """Whether a record is not on the topic yet."""
        if type(record) is not self.kind or record.index < self.index:
            return False
        return record.index > self.index or record.after.row_id.encode() not in self.keys


class ChangeFeed:
    """Publishes the changes of one log's tables. Used by one thread."""

    def __init__(
        self,
        log: EventLog,
        uri: str,
        *,
        snapshots: SnapshotStore | None = None,
        on_error: Callable[[BelogError], None] | None = None,
    ) -> None:
        """Open both topics. Blocks for round trips.

        Args:
            log: Initialized; stays the caller's to close.
            uri: See `topic_uris`.
            snapshots: Where to begin once the log was vacuumed.
            on_error: Called with each error that is waited out.

        Raises:
            InvalidUri: The URI is malformed.
            NotFound: A topic is not there; the hint is the command that makes it.
            Misconfigured: One cannot be used.
            Unavailable: No broker answers.
        """
        self._log = log
        self._snapshots = snapshots
        self._on_error = on_error
        partitions, builds = topic_uris(uri)
        self._places = [_Place(KeyedTopic(partitions), PartitionChange)]
        try:
            self._places.append(_Place(KeyedTopic(builds), BuildChange))
        except BelogError:
            self.close()
            raise
        self._tables: TableFold | None = None
        self._written = 0

    def close(self) -> None:
        """Release the topics. Idempotent."""
        for place in self._places:
            place.topic.close()

    def run(self, stop: threading.Event) -> ChangeProgress:
        """Publish until told to stop; errors that may pass are waited out.

        Raises:
            LogReplaced: The topics hold changes of another log.
            BelogError: An error that does not pass by itself.
        """
        progress = ChangeProgress(0, 0)
        while not stop.is_set():
            try:
                progress = self.run_once(stop)
            except BelogError as error:
                if not error.retriable and not isinstance(error, Diverged):
                    raise
                if self._on_error is not None:
                    self._on_error(error)
                stop.wait(RETRY_S)
                continue
            self._log.wait_for_index(progress.next_idx, FOLLOW_WAIT_S)
        return progress

    def run_once(self, stop: threading.Event) -> ChangeProgress:
        """Publish what the log holds now.

        Returns:
            How far it came; durable on the topics.

        Raises:
            LogReplaced: The topics hold changes of another log.
            Diverged: Another process writes to the topics; a repeat goes on from what they hold.
            Gone: The log was vacuumed, and no snapshot can be used.
            BelogError: The log or a topic cannot be used.
        """
        # Set again where it went well: else the topics' ends say where to go on.
        tables, self._tables = self._tables or self._start(), None
        while not stop.is_set():
            records = self._log.scan(tables.fold.next_position, SCAN_RECORDS_MAX)
            if not records:
                break
            change = tables.apply(records)
            log_id = tables.log_id or ""
            self._publish(
                [
                    record
                    for outcome, rows in change.row_changes()
                    for row in rows
                    if (record := change_of(log_id, outcome, row)) is not None
                ]
            )
        self._tables = tables
        return ChangeProgress(tables.fold.next_idx, self._written)

    def _publish(self, records: Sequence[ChangeRecord]) -> None:
        for place in self._places:
            pairs = [encoded(record) for record in records if place.lacks(record)]
            for at in range(0, len(pairs), PUT_RECORDS_MAX):
                part = pairs[at : at + PUT_RECORDS_MAX]
                place.topic.put([key for key, _ in part], [value for _, value in part])
                self._written += len(part)

    def _start(self) -> TableFold:
        """Return tables as of before the first event that the topics may lack."""
        identity = self._log.identify()
        if identity is None:
            msg = "there is no log yet"
            raise NotFound(msg, log=self._log.name)
        for place in self._places:
            place.look()
            if place.log_id not in {None, str(identity.log_id)}:
                msg = f"the topic holds changes of log {place.log_id}, not of {identity.log_id}"
                raise LogReplaced(msg, log=place.topic.name, hint="name other topics")
        first = min(place.index for place in self._places)
        found = None
        if self._snapshots is not None and first >= 0:
            found = restore_tables(
                self._log, identity, self._snapshots, keeps_root=False, next_idx_max=first
            )
        return TableFold(Fold(keeps_root=False)) if found is None else found[1]
