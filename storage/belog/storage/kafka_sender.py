"""Writing to a topic: an idempotent producer whose reports one thread serves.

Records are sent in call order and keep that order over retries; each gets exactly one report. When
the producer fails for good (its idempotence is lost), what it had in flight is reported as unknown
and the next record goes to a new producer.
"""

import functools
import threading
import time
from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from belog.schemas.errors import BelogError, Closed, LogTruncated, Overloaded
from belog.storage.interface import SendReport
from belog.storage.kafka_errors import (
    LOGGER,
    as_kafka_error,
    delivery_error,
    log_error,
    start_error,
    too_large,
)
from belog.storage.kafka_target import KafkaTarget

__all__ = ["SEND_BUFFER_KBYTES_MAX", "SEND_BUFFER_RECORDS_MAX", "Sender"]

SEND_BUFFER_RECORDS_MAX: Final = 100_000
"""Records handed over and not yet reported: a third of a second at full rate."""

SEND_BUFFER_KBYTES_MAX: Final = 262_144
"""Their bytes, KiB: room for the largest records, and bounded memory."""

POLL_S: Final = 0.2
"""Longest wait for reports, seconds, before a look whether the log was closed."""

CLOSE_S: Final = 5.0
"""Longest wait at close for the reports of what was given up, seconds: they need no network."""

PARTITION: Final = 0

OnReport = Callable[[SendReport], None]


class Sender:
    """Sends records to one topic. Thread-safe."""

    def __init__(self, target: KafkaTarget) -> None:
        """Name a topic; the producer and its thread start with the first record."""
        self._target = target
        self._topic = target.topic
        self._lock = threading.Lock()
        self._closed = False
        self._producer: Producer | None = None
        self._thread: threading.Thread | None = None
        self.acknowledged = 0
        """Position after the last record that the log acknowledged to this sender."""

    def send(self, key: bytes, value: bytes | None, on_report: OnReport) -> None:
        """See `OrderedLog.send`; a value of None is a tombstone.

        Raises:
            LimitExceeded: The record is larger than a topic has to take.
        """
        report = functools.partial(self._report, on_report)
        with self._lock:
            producer = self._producer or self._start()
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
                self._retire(known)
                self._start().produce(self._topic, value, key, PARTITION, on_delivery=report)

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

    def _retire(self, error: KafkaError) -> None:
        """Let a failed producer report what it had, by its own thread, and forget it."""
        LOGGER.error("the producer failed for good and is replaced: %s", error.str())
        if self._producer is not None:
            self._producer.purge(blocking=False)
        self._producer = None

    def _serve(self, producer: Producer) -> None:
        """Call back with reports as long as the producer is in use or has some to come."""
        while producer is self._producer or len(producer):
            try:
                producer.poll(POLL_S)
            except Exception:  # noqa: BLE001 - a callback's fault; the reports after it must come
                LOGGER.exception("a report of a send could not be taken")

    def _report(self, on_report: OnReport, error: KafkaError | None, message: Message) -> None:
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
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(CLOSE_S)
