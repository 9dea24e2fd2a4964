"""Writing to a topic: an idempotent producer whose reports one thread serves.

Records are sent in call order and keep that order over retries; each gets exactly one report. When
the producer fails for good (its idempotence is lost), what it had in flight is reported as unknown
and the next record goes to a new producer.
"""

import functools
import os
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Final, cast

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from belog.schemas.errors import BelogError, Closed, LogTruncated, Overloaded, Unavailable
from belog.storage.kafka_errors import (
    LOGGER,
    as_kafka_error,
    delivery_error,
    log_error,
    start_error,
    too_large,
)
from belog.storage.kafka_target import KafkaTarget
from belog.storage.sending import OnReport, SendReport, Series, SeriesReports, Serving

__all__ = [
    "SEND_BUFFER_KBYTES_MAX",
    "SEND_BUFFER_RECORDS_MAX",
    "Sender",
    "new_keys",
    "send_all",
]

SEND_BUFFER_RECORDS_MAX: Final = 100_000
"""Records handed over and not yet reported: a third of a second at full rate."""

SEND_BUFFER_KBYTES_MAX: Final = 262_144
"""Their bytes, KiB: room for the largest records, and bounded memory."""

POLL_S: Final = 0.2
"""Longest wait for reports, seconds, before a look whether the log was closed."""

IDLE_S: Final = 0.2
"""Pause of the reports' thread while nothing is in flight, seconds: for what else the client has to
say, such as that all brokers are away."""

CROWD_RECORDS: Final = 1_000
"""Records in flight from which reports are taken in groups: somebody sends without waiting."""

CROWD_PAUSE_S: Final = 0.002
"""Pause between such groups, seconds. Taking reports one by one as they come in would make the
sending thread hand over the interpreter for each."""

CLOSE_S: Final = 5.0
"""Longest wait at close for the reports of what was given up, seconds: they need no network."""

CONNECT_S: Final = 2.0
"""Longest wait of a new producer for its broker before it looks for reports, seconds."""

REPORT_MARGIN_S: Final = 5.0
"""What a wait for reports allows beyond the delivery time-out, seconds: the client looks for
sends that are over time about once a second."""

BUFFER_PAUSE_S: Final = 0.005
"""Pause of a run of sends that finds the buffer full, seconds: a few hundred records leave it."""

KEY_BYTES: Final = 16
PARTITION: Final = 0

_OnDelivery = Callable[[KafkaError | None, Message], None]


class Sender:
    """Sends records to one topic. Thread-safe."""

    def __init__(self, target: KafkaTarget) -> None:
        """Name a topic; the producer and its thread start with the first record."""
        self._target = target
        self._topic = target.topic
        self.log = target.name
        self.report_wait_s = target.delivery_timeout_ms / 1000 + REPORT_MARGIN_S
        """Within this time every send is reported, seconds."""
        self._lock = threading.Lock()
        self._closed = False
        self._producer: Producer | None = None
        self._thread: threading.Thread | None = None
        self._polling = threading.Lock()
        """Held by the one thread that takes reports."""
        self._sent = threading.Event()
        self.acknowledged = 0
        """Position after the last record that the log acknowledged to this sender."""

    def send(self, key: bytes, value: bytes | None, on_report: OnReport) -> None:
        """See `OrderedLog.send`; a value of None is a tombstone.

        Raises:
            LimitExceeded: The record is larger than a topic has to take.
        """
        self.produce(key, value, functools.partial(self.take_report, on_report))

    def series(self, first: int, reports: SeriesReports) -> Series:
        """See `OrderedLog.series`."""
        return _Series(self, first, reports)

    def produce(self, key: bytes, value: bytes | None, report: _OnDelivery) -> None:
        """Hand a record over to the client, which calls back; errors as those of `send`."""
        # The producer is thread-safe; the lock is for replacing it only, which is rare.
        producer = self._producer or self._started()
        try:
            producer.produce(self._topic, value, key, PARTITION, on_delivery=report)
        except BufferError as error:
            raise Overloaded(
                "the send buffer is full",
                log=self._target.name,
                hint="wait for reports, then send again",
            ) from error
        except KafkaException as error:
            known = as_kafka_error(error)
            if known is None or known.code() != KafkaError._FATAL:  # noqa: SLF001
                raise self._refusal(error, known, value) from error
            self._retire(producer, known)
            self._started().produce(self._topic, value, key, PARTITION, on_delivery=report)
        # Whoever serves looks again before he leaves.
        if not self._polling.locked():
            self._sent.set()

    @contextmanager
    def serving(self) -> Generator[Serving]:
        """See `OrderedLog.serving`."""
        if not self._polling.acquire(blocking=False):
            yield Serving()
            return
        offer = _Offer(self._polling, self._sent, lambda: self._producer)
        try:
            yield offer
        finally:
            offer.release()

    def send_run(self, keys: Sequence[bytes], values: Sequence[bytes]) -> SendReport:
        """Send records in order and wait; return the report of the last, or the first error.

        For long runs: a report costs a tenth of what one of `send` does. Where no report is an
        error and the last record landed `len(keys) - 1` behind the log's end, all landed in a row.
        """
        run = _Run(self.log, len(keys))
        producer = self._producer or self._started()
        # Bound once: ten thousand bound methods at a time would set the garbage collector off.
        take, produce = run.take, producer.produce
        sent = 0
        try:
            for key, value in zip(keys, values, strict=True):
                while True:
                    try:
                        produce(self._topic, value, key, PARTITION, on_delivery=take)
                    except BufferError:
                        run.ended.wait(BUFFER_PAUSE_S)
                    else:
                        break
                sent += 1
                if sent == 1:
                    self._sent.set()
        except KafkaException as error:
            known = as_kafka_error(error)
            if known is not None and known.code() == KafkaError._FATAL:  # noqa: SLF001
                self._retire(producer, known)
                run.error = delivery_error(known, values[sent], self.log)
            else:
                run.error = self._refusal(error, known, values[sent])
            run.expect(sent)
        if not run.ended.wait(self.report_wait_s):
            msg = f"{sent - run.taken} sends were not reported within {self.report_wait_s} s"
            return SendReport(-1, 0, Unavailable(msg, log=self.log))
        if run.error is not None:
            return SendReport(-1, 0, run.error)
        if run.position < self.acknowledged:
            return SendReport(run.position, run.created_at, self._shorter(run.position))
        self.acknowledged = run.position + 1
        return SendReport(run.position, run.created_at)

    def _started(self) -> Producer:
        with self._lock:
            return self._producer or self._start()

    def _refusal(
        self, error: KafkaException, known: KafkaError | None, value: bytes | None
    ) -> BelogError:
        if known is not None and known.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            return too_large(value)
        return start_error(error, self._target)

    def _start(self) -> Producer:
        if self._closed:
            raise Closed("the log was closed", log=self._target.name)
        config = self._target.producer() | {
            "queue.buffering.max.messages": SEND_BUFFER_RECORDS_MAX,
            "queue.buffering.max.kbytes": SEND_BUFFER_KBYTES_MAX,
        }
        try:
            producer = Producer({**config, "error_cb": log_error}, logger=LOGGER)
        except KafkaException as error:
            raise start_error(error, self._target) from error
        self._producer = producer
        self._thread = threading.Thread(
            target=self._serve, args=(producer,), name="belog-kafka-reports", daemon=True
        )
        self._thread.start()
        return producer

    def _retire(self, failed: Producer, error: KafkaError) -> None:
        """Let a failed producer report what it had, by its own thread, and forget it."""
        with self._lock:
            if self._producer is not failed:
                return
            self._producer = None
        LOGGER.error("the producer failed for good and is replaced: %s", error.str())
        failed.purge(blocking=False)

    def _serve(self, producer: Producer) -> None:
        """Call back with reports as long as the producer is in use or has some to come."""
        try:
            # Else the client asks for its producer id before it has a connection, and again only
            # after half a second.
            producer.list_topics(self._topic, CONNECT_S)
        except KafkaException as error:
            LOGGER.warning("no metadata for the producer yet: %s", error)
        while producer is self._producer or len(producer):
            if not len(producer):
                self._sent.wait(IDLE_S)
                self._sent.clear()
            elif len(producer) > CROWD_RECORDS:
                time.sleep(CROWD_PAUSE_S)
            with self._polling:
                _poll(producer, POLL_S if len(producer) else 0)

    def take_report(self, on_report: OnReport, error: KafkaError | None, message: Message) -> None:
        """Pass on what the client calls back with, or what is wrong with it."""
        if error is not None:
            failed = delivery_error(error, message.value(), self._target.name)
            on_report(SendReport(-1, 0, failed))
            return
        position = message.offset() or 0
        created_at = message.timestamp()[1] * 1000
        if position < self.acknowledged:
            on_report(SendReport(position, created_at, self._shorter(position)))
            return
        self.acknowledged = position + 1
        on_report(SendReport(position, created_at))

    def _shorter(self, position: int) -> LogTruncated:
        return LogTruncated(
            f"a record landed at {position}, after one at {self.acknowledged - 1}",
            log=self._target.name,
            index=position,
            hint="the topic was deleted, recreated or cut: compare log ids before going on",
        )

    def close(self) -> None:
        """Give up what is not reported yet: each such record gets its report now. Idempotent."""
        with self._lock:
            self._closed = True
            producer, self._producer = self._producer, None
        if producer is None:
            return
        producer.purge()
        deadline = time.monotonic() + CLOSE_S
        while len(producer) and time.monotonic() < deadline:
            producer.poll(POLL_S / 4)
        self._sent.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(CLOSE_S)


def send_all(
    sender: Sender, keys: Sequence[bytes], values: Sequence[bytes | None]
) -> list[SendReport]:
    """Send records in order and wait for all reports; a record's refusal is its report.

    Raises:
        Overloaded: Other senders fill the buffer, and none of these records was reported for the
            delivery time-out. Retriable; those that were sent before are in the log.
    """
    reports = _Reports(len(values))
    for n, (key, value) in enumerate(zip(keys, values, strict=True)):
        while True:
            done = reports.done
            try:
                sender.send(key, value, functools.partial(reports.take, n))
            except Overloaded:
                if not reports.wait_past(done, sender.report_wait_s):
                    raise
                continue
            except BelogError as error:
                reports.take(n, SendReport(-1, 0, error))
            break
    if not reports.wait_past(len(values) - 1, sender.report_wait_s):
        # Each send is reported within the time-out, so this is the client's own fault.
        msg = (
            f"{len(values) - reports.done} sends were not reported within {sender.report_wait_s} s"
        )
        raise Unavailable(msg, log=sender.log)
    return reports.reports


def _poll(producer: Producer, timeout_s: float) -> None:
    try:
        producer.poll(timeout_s)
    except Exception:  # noqa: BLE001 - a callback's fault; the reports after it must come
        LOGGER.exception("a report of a send could not be taken")


class _Offer(Serving):
    """The offer of a thread that holds the right to take reports."""

    def __init__(
        self,
        polling: threading.Lock,
        sent: threading.Event,
        producer: Callable[[], Producer | None],
    ) -> None:
        self._polling: threading.Lock | None = polling
        self._sent = sent
        self._producer = producer

    def until(self, done: Callable[[], bool], timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        producer = self._producer()
        while self._polling is not None and producer is not None and not done():
            left = deadline - time.monotonic()
            # One that was replaced has its own thread, which waits for our turn to end.
            if left <= 0 or producer is not self._producer():
                return
            _poll(producer, min(left, POLL_S))

    def release(self) -> None:
        if self._polling is None:
            return
        polling, self._polling = self._polling, None
        polling.release()
        producer = self._producer()
        if producer is not None and len(producer):
            self._sent.set()


class _Series(Series):
    """A series of which the client calls back for each record, so that has to cost nothing."""

    __slots__ = ("_delivery", "_numbers", "_sender")

    def __init__(self, sender: Sender, first: int, reports: SeriesReports) -> None:
        super().__init__(sender.send, first, reports)
        self._sender = sender
        self._delivery = self._delivered
        self._numbers: dict[bytes, int] = {}

    def send(self, key: bytes, value: bytes) -> None:
        # Its report may come before the call returns.
        self._numbers[key] = self.sent
        self._sender.produce(key, value, self._delivery)
        self.sent += 1

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        times = self._times
        # What is over time, or was in a client that failed, is not reported in its turn.
        number = self._numbers[cast("bytes", message.key())]
        if error is None and self._is_whole and number == len(times):
            position = message.offset() or 0
            if position == self._first + number and position >= self._sender.acknowledged:
                self._sender.acknowledged = position + 1
                times.append(message.timestamp()[1] * 1000)
                if len(times) == self._end:
                    self._land()
                return
        self._sender.take_report(functools.partial(self.take, number), error, message)


class _Run:
    """What became of a run of records, of which the last report and any error count."""

    __slots__ = ("_log", "_total", "created_at", "ended", "error", "position", "taken")

    def __init__(self, log: str, total: int) -> None:
        self._log = log
        self._total = total
        self.taken = 0
        self.error: BelogError | None = None
        self.position = -1
        self.created_at = 0
        self.ended = threading.Event()

    def take(self, error: KafkaError | None, message: Message) -> None:
        if error is not None and self.error is None:
            self.error = delivery_error(error, message.value(), self._log)
        self.taken += 1
        if self.taken == self._total:
            self.position = message.offset() or 0
            self.created_at = message.timestamp()[1] * 1000
            self.ended.set()

    def expect(self, total: int) -> None:
        """Say that fewer reports will come."""
        self._total = total
        if self.taken >= total:
            self.ended.set()


class _Reports:
    """The reports of one batch, as they come in."""

    def __init__(self, count: int) -> None:
        self._changed = threading.Condition()
        self._awaited = 0
        self.reports: list[SendReport] = cast("list[SendReport]", [None] * count)
        self.done = 0

    def take(self, n: int, report: SendReport) -> None:
        self.reports[n] = report
        with self._changed:
            self.done += 1
            if self.done > self._awaited:
                self._changed.notify_all()

    def wait_past(self, done: int, timeout_s: float) -> bool:
        """Wait until more than so many reports are in; return whether they are."""
        with self._changed:
            self._awaited = done
            return self._changed.wait_for(lambda: self.done > done, timeout_s)


def new_keys(count: int) -> list[bytes]:
    """Return record keys that no other record has."""
    drawn = os.urandom(KEY_BYTES * count)
    return [drawn[at : at + KEY_BYTES] for at in range(0, len(drawn), KEY_BYTES)]
