"""Reading a topic: cursors that stay where they are, so that reading on never seeks.

A cursor is an assigned consumer with the batch it gave last. Reading on from where it stands, or
again from within that batch, costs no seek. `Cursors` keeps a few of them, because one log is often
read from several places in turn: at its tail by whoever judges, and elsewhere by who pages through
it.

"Nothing more" is decided by the broker, not guessed: a read is short only if the end of the log,
asked for during the read, was reached, or the broker's end-of-partition event says so (positions at
the end may hold no record).
"""

import contextlib
import threading
import time
from bisect import bisect_left
from collections.abc import Generator
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from belog.schemas.errors import BelogError, Closed, Unavailable
from belog.schemas.fold import Record
from belog.storage.kafka_errors import (
    LOGGER,
    TOPIC_FORGOTTEN,
    TOPIC_GONE,
    as_kafka_error,
    log_error,
    read_error,
    start_error,
)
from belog.storage.kafka_target import KafkaTarget

__all__ = ["CURSORS_MAX", "Cursors", "PositionLostError"]

CURSORS_MAX: Final = 4
"""Consumers of one log: one waits at the tail, one folds there, two read elsewhere. Each holds up
to `PREFETCH_KBYTES` and a few threads."""

PREFETCH_KBYTES: Final = 16_384
"""What one cursor reads ahead, KiB: some 50,000 records of the usual size, half a second of
folding."""

RANDOM_RECORDS_MAX: Final = 100
"""Reads of at most this many records go to a consumer that reads little ahead."""

RANDOM_FETCH_BYTES: Final = 65_536
"""What that consumer fetches at once, bytes: larger records come whole all the same."""

RANDOM_FETCH_WAIT_MS: Final = 1
"""How long its fetch may wait at the broker, milliseconds. Its other requests queue up behind the
fetch, and it is also the one that asks for the end of the log."""

BATCH_RECORDS_MAX: Final = 10_000
"""Records that a cursor which waits keeps for the read that follows; more are read anew."""

READ_S: Final = 8.0
"""A broker that gives neither a record nor the end of the log for this long is unavailable,
seconds."""

SLICE_S: Final = 0.2
"""Longest wait in the client, seconds, before a look whether the log was closed."""

ASK_S: Final = 0.4
"""As `SLICE_S`, for the question where the log ends: an answer takes a millisecond, connecting anew
some more."""

PAUSE_S: Final = 0.05
"""Between two questions that no broker answered, seconds."""

IDLE_S: Final = 0.25
"""A cursor idle for so long rests once records are sent, seconds: it would fetch each of them, at a
cost to broker and client, and going on elsewhere takes a few milliseconds."""

PARTITION: Final = 0
_LOST: Final = frozenset(
    {
        KafkaError._AUTO_OFFSET_RESET,  # noqa: SLF001 - the client's own name for its local errors
        KafkaError.OFFSET_OUT_OF_RANGE,
        KafkaError._LOG_TRUNCATION,  # noqa: SLF001
        *TOPIC_GONE,
    }
)
_AWAY: Final = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001 - as above
        KafkaError._TIMED_OUT,  # noqa: SLF001
        KafkaError._TRANSPORT,  # noqa: SLF001
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001
        KafkaError._WAIT_CACHE,  # noqa: SLF001
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        # A new leader does not know yet how far the log was acknowledged.
        KafkaError.OFFSET_NOT_AVAILABLE,
    }
)


class PositionLostError(Exception):
    """What should be in the topic is not there; the log finds out why. Never leaves the log.

    Attributes:
        position: A position that the topic should reach or hold.
    """

    def __init__(self, message: str, position: int) -> None:
        super().__init__(message)
        self.position = position


class _Cursor:
    """One consumer at one place. Used by one thread at a time."""

    def __init__(self, target: KafkaTarget, **settings: str | int) -> None:
        self._target = target
        config = {**target.consumer(), **settings, "error_cb": log_error}
        try:
            self.consumer = Consumer(config, logger=LOGGER)
        except KafkaException as error:
            raise start_error(error, target) from error
        self._batch: list[Record] = []
        self._since = -1
        self.next = -1
        """Position after the last record taken from the consumer; -1 while it is nowhere."""
        self._end = -1
        """Where the consumer saw the end of the log last."""
        self.busy = False
        self.used = 0
        self.used_at = 0.0

    def covers(self, position: int) -> bool:
        return self._since <= position <= self.next

    def go_to(self, position: int) -> None:
        self.consumer.assign([TopicPartition(self._target.topic, PARTITION, position)])
        self._batch = []
        self._since = self.next = position
        self._end = -1

    def rest(self) -> None:
        """Stop fetching; the cursor is nowhere then."""
        self.consumer.unassign()
        self._batch = []
        self._since = self.next = -1

    def _take(self, messages: list[Message], into: list[Record]) -> None:
        # A message without error has an offset; the client types it as optional.
        taken = [
            Record(
                message.offset() or 0, message.timestamp()[1] * 1000, message.value(), message.key()
            )
            for message in messages
            if message.error() is None
        ]
        into += taken
        if taken:
            self.next = taken[-1].position + 1
        if len(taken) < len(messages):
            for message in messages:
                error = message.error()
                if error is not None:
                    self._mark(error, message)

    def _mark(self, error: KafkaError, message: Message) -> None:
        code = error.code()
        if code == KafkaError._PARTITION_EOF:  # noqa: SLF001 - as above
            self._end = message.offset() or 0
            self.next = max(self.next, self._end)
        elif code in _LOST:
            position = self.next
            self.rest()
            raise PositionLostError(error.str(), position)
        elif error.retriable():
            log_error(error)
        else:
            raise read_error(error, self._target.name)

    def drain(self, limit: int, into: list[Record]) -> bool:
        """Take what the client has already; whether there was anything."""
        messages = self.consumer.consume(limit, 0)
        self._take(messages, into)
        return bool(messages)

    def poll(self, timeout_s: float, into: list[Record]) -> bool:
        """Wait for the next record or end of the log; whether there was anything."""
        message = self.consumer.poll(timeout_s)
        if message is None:
            return False
        self._take([message], into)
        return True

    def buffered(self, since: int, limit: int) -> list[Record]:
        """Return what the last batch holds from `since` on."""
        if not self._batch or since > self._batch[-1].position:
            return []
        if since <= self._batch[0].position:
            return self._batch[:limit]
        start = bisect_left(self._batch, since, key=lambda record: record.position)
        return self._batch[start : start + limit]

    def keep(self, since: int, records: list[Record]) -> None:
        """Remember a batch that was read from `since` on."""
        self._batch = records
        self._since = since

    def extend(self, records: list[Record]) -> None:
        """Add to the last batch what was taken while waiting."""
        if len(self._batch) >= BATCH_RECORDS_MAX:
            self._batch, self._since = [], records[0].position
        self._batch = self._batch + records

    def is_at_end(self, end: int) -> bool:
        return self.next >= end or self._end >= end


class Cursors:
    """The readers of one topic. Thread-safe."""

    def __init__(self, target: KafkaTarget) -> None:
        """Name a topic; nothing is opened yet."""
        self._target = target
        self._changed = threading.Condition()
        self._cursors: list[_Cursor] = []
        self._uses = 0
        self._random_lock = threading.Lock()
        self._random: _Cursor | None = None
        self._watching = False
        self._reached = 0
        """The farthest end of the topic that the broker named."""
        self._seen = 0
        """Where a thread that waits saw the log end, so that others which wait for less go on."""
        self._closed = False
        self._next_look = 0.0

    def rest_idle(self) -> None:
        """Let cursors stop that nobody reads from; called for every record that is sent."""
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + IDLE_S
        with self._changed:
            if self._closed:
                return
            idle = [
                c for c in self._cursors if not c.busy and c.next >= 0 and now - c.used_at > IDLE_S
            ]
            for cursor in idle:
                cursor.busy = True
        for cursor in idle:
            try:
                cursor.rest()
            finally:
                with self._changed:
                    cursor.busy = False
                    self._changed.notify_all()

    def close(self) -> None:
        """Close all consumers; calls that wait end with `Closed` within `SLICE_S`. Idempotent."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not any(c.busy for c in self._cursors), READ_S)
            cursors, self._cursors = self._cursors, []
        with self._random_lock:
            if self._random is not None:
                cursors.append(self._random)
                self._random = None
        for cursor in cursors:
            cursor.consumer.close()

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the log was closed", log=self._target.name)

    def bounds(self, reached: int = 0) -> tuple[int, int]:
        """Ask the broker for the first position that is there, and the one after the last.

        Args:
            reached: Where the topic was known to end before this call.

        Raises:
            PositionLostError: The topic is gone, or ends before where it ended once.
            Unavailable: No answer in time. Retriable.
        """
        low, end = self.bounds_now()
        with self._changed:
            reached = max(reached, self._reached)
            self._reached = max(end, reached)
        if end < reached:
            # Another thread may have heard of a later end while this one's answer was under way.
            low, end = self.bounds_now()
            if end < reached:
                raise PositionLostError(f"the topic ends at {end}", reached)
        return low, end

    def bounds_now(self) -> tuple[int, int]:
        """Ask as `bounds` does, of a topic that may have been cut."""
        deadline = time.monotonic() + READ_S
        partition = TopicPartition(self._target.topic, PARTITION)
        while True:
            try:
                with self._using_random() as cursor:
                    return cursor.consumer.get_watermark_offsets(partition, ASK_S, cached=False)
            except KafkaException as error:
                known = as_kafka_error(error)
                code = None if known is None else known.code()
                late = time.monotonic() > deadline
                # A client that lost its broker may say that it knows no such partition.
                if code in _LOST and (late or code not in _AWAY):
                    raise PositionLostError(str(known), 0) from error
                if code in TOPIC_FORGOTTEN:
                    self._forget_random()
                if late or code not in _AWAY:
                    raise start_error(error, self._target) from error
            with self._changed:
                self._check_open()
                self._changed.wait(PAUSE_S)

    def _forget_random(self) -> None:
        """Ask by a new client from now on."""
        with self._random_lock:
            forgotten, self._random = self._random, None
        if forgotten is not None:
            forgotten.consumer.close()

    @contextlib.contextmanager
    def _using_random(self) -> Generator[_Cursor]:
        with self._random_lock:
            self._check_open()
            if self._random is None:
                self._random = _Cursor(
                    self._target,
                    **{
                        "fetch.message.max.bytes": RANDOM_FETCH_BYTES,
                        "fetch.wait.max.ms": RANDOM_FETCH_WAIT_MS,
                        "fetch.queue.backoff.ms": 1,
                        "queued.min.messages": 1,
                        "queued.max.messages.kbytes": 1_024,
                    },
                )
            yield self._random

    def read(self, since: int, limit: int, reached: int = 0) -> list[Record]:
        """Return up to `limit` records from a position on; fewer only where the log ends.

        Args:
            since: First position wanted.
            limit: Most records to return.
            reached: Where the topic was known to end before this call.

        Raises:
            PositionLostError: The position is not in the topic, the topic is gone, or it ends
                before where it ended once.
            Unavailable: No answer in time. Retriable.
        """
        with self._using(since) as cursor:
            if cursor is not None:
                return self._fill(cursor, since, limit)
        low, end = self.bounds(reached)
        if since >= end:
            return []
        if since < low:
            raise PositionLostError(f"the topic starts at {low}", since)
        if limit <= RANDOM_RECORDS_MAX:
            with self._using_random() as cursor:
                cursor.go_to(since)
                try:
                    return self._fill(cursor, since, limit, end)
                finally:
                    cursor.rest()
        with self._using(since, go_there=True) as cursor:
            assert cursor is not None  # noqa: S101 - it was asked to go there
            return self._fill(cursor, since, limit)

    def _fill(
        self, cursor: _Cursor, since: int, limit: int, end: int | None = None
    ) -> list[Record]:
        records = cursor.buffered(since, limit)
        if len(records) == limit:
            return records
        deadline = time.monotonic() + READ_S
        try:
            while len(records) < limit:
                if cursor.drain(limit - len(records), records):
                    continue
                if end is None:
                    end = self.bounds(cursor.next)[1]
                if cursor.is_at_end(end):
                    break
                self._check_open()
                if not cursor.poll(SLICE_S, records) and time.monotonic() > deadline:
                    msg = f"no record and no end for {READ_S} s at {cursor.next} of {end}"
                    raise Unavailable(msg, log=self._target.name)
        except (BelogError, PositionLostError):
            # What was taken is in no batch: let the next read start anew.
            cursor.rest()
            raise
        cursor.keep(since, records)
        return records[:]

    @contextlib.contextmanager
    def _using(self, position: int, *, go_there: bool = False) -> Generator[_Cursor | None]:
        """Lend a cursor that is at a position; None if none is and it should not be moved there."""
        cursor = self._lease(position, go_there=go_there)
        try:
            if cursor is not None and not cursor.covers(position):
                cursor.go_to(position)
            yield cursor
        finally:
            if cursor is not None:
                with self._changed:
                    cursor.busy = False
                    cursor.used_at = time.monotonic()
                    self._changed.notify_all()

    def _lease(self, position: int, *, go_there: bool) -> _Cursor | None:
        with self._changed:
            while True:
                self._check_open()
                cursor: _Cursor | None
                free = [c for c in self._cursors if not c.busy]
                at = [c for c in free if c.covers(position)]
                if at or not go_there:
                    cursor = max(at, key=lambda c: c.next, default=None)
                    break
                if len(self._cursors) < CURSORS_MAX:
                    cursor = _Cursor(
                        self._target,
                        **{
                            "queued.max.messages.kbytes": PREFETCH_KBYTES,
                            "fetch.queue.backoff.ms": 1,
                        },
                    )
                    self._cursors.append(cursor)
                    break
                if free:
                    cursor = min(free, key=lambda c: c.used)
                    break
                self._changed.wait(SLICE_S)
            if cursor is not None:
                self._uses += 1
                cursor.busy, cursor.used = True, self._uses
            return cursor

    def wait(self, position: int, timeout_s: float) -> bool:
        """Block until the log has a record at or after a position, or until the time is over.

        One thread at a time waits in the client; others wait for it.

        Raises:
            PositionLostError: The topic is gone or was cut.
            Closed: The log was closed meanwhile.
        """
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while True:
                self._check_open()
                if self._seen > position:
                    return True
                if not self._watching:
                    self._watching = True
                    break
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(left)
        try:
            return self._watch(position, deadline)
        finally:
            with self._changed:
                self._watching = False
                self._changed.notify_all()

    def _watch(self, position: int, deadline: float) -> bool:
        end = self.bounds()[1]
        if end > position:
            return True
        with self._using(end, go_there=True) as cursor:
            assert cursor is not None  # noqa: S101 - it was asked to go there
            while True:
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self._check_open()
                records: list[Record] = []
                cursor.poll(min(left, SLICE_S), records)
                if records:
                    cursor.extend(records)
                    with self._changed:
                        self._seen = cursor.next
                        self._changed.notify_all()
                if cursor.next > position:
                    return True
