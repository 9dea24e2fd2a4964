"""Records that no producer of this project wrote, straight into the topic."""

import random
from collections.abc import Callable, Sequence
from typing import ClassVar, Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)

from belog.schemas.envelope import Event, encode_event
from belog.schemas.lifecycle import SubjectKind
from belog.schemas.limits import EVENT_BYTES_MAX
from belog.schemas.payload import JsonValue, digest, encode_payload
from belog.storage.kafka_topic import TOPIC_MESSAGE_BYTES_MAX
from tests.chaos.deployment import Allowance, Deployment
from tests.chaos.faults.basis import BaseFault
from tests.chaos.faults.topics import FAST_COMPACTION, alter_topic, broker_of
from tests.servers import eventually

__all__ = [
    "ForeignRecords",
    "NewerRecord",
    "foreign_event",
    "garbage",
    "newer_envelope",
    "newer_lifecycle",
    "oversize",
    "raw_records",
    "remove_record",
    "write_raw",
]

ANSWER_S: Final = 10.0
"""How long the broker may take to acknowledge, seconds."""

GONE_S: Final = 60.0
"""How long compaction may take to remove a record, seconds; 15 are usual."""

RECORDS_MAX: Final = 10_000
"""Records taken at once."""

OVERHEAD_BYTES: Final = 200
"""What a record's batch adds to its value; rounded up."""

OCCURRED_AT: Final = 1_750_000_000_000_000

Made = Callable[[random.Random], bytes]


def write_raw(bootstrap: str, topic: str, values: Sequence[bytes | None], key: bytes) -> list[int]:
    """Write values one after the other, all with one key; return their offsets.

    Raises:
        RuntimeError: The broker did not take one.
    """
    offsets: list[int] = []
    errors: list[str] = []
    config: dict[str, str | int] = {
        "bootstrap.servers": bootstrap,
        "message.max.bytes": 2 * TOPIC_MESSAGE_BYTES_MAX,
        "log_level": 0,
    }
    producer = Producer(config)
    for value in values:
        producer.produce(
            topic,
            value,
            key,
            on_delivery=lambda error, message: (
                errors.append(error.str()) if error else offsets.append(message.offset() or 0)
            ),
        )
    left = producer.flush(ANSWER_S)
    if left or errors:
        raise RuntimeError(f"{left} records without an answer, refused: {errors}")
    return offsets


def foreign_event(
    rng: random.Random,
    event_type: str,
    subject_id: str,
    body: dict[str, JsonValue] | None = None,
    *,
    kind: SubjectKind = "partition",
) -> Event:
    """Return an event that went through no check; its actor says that it is none of the log's."""
    payload = encode_payload(body or {})
    return Event(
        rng.randbytes(16),
        event_type,
        kind,
        subject_id,
        "chaos-writer",
        OCCURRED_AT,
        payload,
        digest(payload),
    )


def garbage(rng: random.Random) -> bytes:
    """Return something that is no event, or one that is damaged, illegal or of a strange type."""
    subject = f"chaos/{rng.randrange(10**6)}"
    good = encode_event(foreign_event(rng, "v1.partition.observed", subject))
    at = rng.randrange(10, len(good))
    ways: list[Callable[[], bytes]] = [
        lambda: b"",
        lambda: rng.randbytes(rng.randrange(1, 500)),
        lambda: b'{"event": "an order of somebody else"}',
        lambda: good[:at],
        lambda: good + b"more",
        # A bit of the digest: damage further ahead may still be an event, of another subject.
        lambda: good[:-3] + bytes([good[-3] ^ 1]) + good[-2:],
        lambda: encode_event(foreign_event(rng, "v1.partition.available", subject)),
        lambda: encode_event(foreign_event(rng, "v1.partition.observed", "control\x00character")),
        lambda: encode_event(foreign_event(rng, "v1.partition.observed", "x" * 2_000)),
        lambda: encode_event(foreign_event(rng, "v9.partition.unheard_of", subject)),
    ]
    return rng.choice(ways)()


def oversize(rng: random.Random) -> bytes:
    """Return a legal event over `EVENT_BYTES_MAX`, as large as the topic takes."""
    size = TOPIC_MESSAGE_BYTES_MAX - OVERHEAD_BYTES - 400
    subject = f"chaos/large/{rng.randrange(10**6)}"
    event = foreign_event(rng, "v1.partition.observed", subject, {"message": "x" * size})
    value = encode_event(event)
    if not EVENT_BYTES_MAX < len(value) < TOPIC_MESSAGE_BYTES_MAX:
        raise AssertionError(f"{len(value)} bytes")
    return value


def newer_envelope(rng: random.Random) -> bytes:
    """Return what a newer program may write: an envelope of a schema that is not known here."""
    value = encode_event(foreign_event(rng, "v1.partition.observed", "chaos/newer"))
    return value[:2] + b"\x07" * 8 + value[10:]


def newer_lifecycle(rng: random.Random, log_id: str) -> bytes:
    """Return an event that puts the log under rules that are not known here."""
    body: dict[str, JsonValue] = {"lifecycle_version": 99}
    event = foreign_event(rng, "v1.system.lifecycle_adopted", log_id, body, kind="system")
    return encode_event(event)


def remove_record(bootstrap: str, topic: str, key: bytes) -> None:
    """Take the records of a key out of a topic: tombstones, and compaction until they are gone.

    The newest segment is never cleaned, so tombstones of the key go on being written meanwhile.
    """

    def is_gone() -> bool:
        write_raw(bootstrap, topic, [None], key)
        return not any(found == key and value for found, value in raw_records(bootstrap, topic))

    alter_topic(bootstrap, topic, FAST_COMPACTION)
    try:
        eventually(is_gone, "the record is gone", timeout_s=GONE_S)
    finally:
        alter_topic(bootstrap, topic, dict.fromkeys(FAST_COMPACTION))


def raw_records(bootstrap: str, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    """Return the keys and values that are in a topic now."""
    config: dict[str, str | int | bool] = {
        "bootstrap.servers": bootstrap,
        "group.id": "chaos",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "log_level": 0,
    }
    consumer = Consumer(config)
    found: list[tuple[bytes | None, bytes | None]] = []
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        while True:
            messages = consumer.consume(RECORDS_MAX, ANSWER_S)
            if not messages:
                raise TimeoutError(f"no end of {topic} within {ANSWER_S} s")
            for message in messages:
                error = message.error()
                if error is None:
                    found.append((message.key(), message.value()))
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                    return found
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()


class ForeignRecords(BaseFault):
    """Records that are no events of this log, or too large ones, are written into its topic."""

    does: ClassVar[str] = "records of others are written straight into the topic"
    allows: frozenset[Allowance] = frozenset({"foreign_records"})

    def __init__(self, name: str, make: Made, count_max: int) -> None:
        self.name = name
        self._make = make
        self._count_max = count_max

    def applies_to(self, deployment: Deployment) -> bool:
        return deployment.backend == "kafka" and deployment.topic is not None

    def inject(self, deployment: Deployment, rng: random.Random) -> None:
        part, broker = broker_of(deployment)
        if part.is_alive() and deployment.topic is not None:
            for _ in range(rng.randint(1, self._count_max)):
                write_raw(broker.bootstrap, deployment.topic, [self._make(rng)], rng.randbytes(16))


class NewerRecord(BaseFault):
    """A record of newer software: everybody stops there until it is gone.

    A person would install the newer software. Here the record is taken out again: a tombstone, and
    compaction until it is gone.
    """

    name = "newer-record"
    does: ClassVar[str] = "a record of newer software, taken out again at the end"
    allows: frozenset[Allowance] = frozenset({"foreign_records", "stops"})
    hold_s = (0.5, 2.0)

    def __init__(self) -> None:
        self._key: bytes | None = None

    def applies_to(self, deployment: Deployment) -> bool:
        return deployment.backend == "kafka" and deployment.topic is not None

    def inject(self, deployment: Deployment, rng: random.Random) -> None:
        part, broker = broker_of(deployment)
        if part.is_alive() and deployment.topic is not None:
            self._key = rng.randbytes(16)
            write_raw(broker.bootstrap, deployment.topic, [newer_envelope(rng)], self._key)

    def heal(self, deployment: Deployment) -> None:
        if self._key is None or deployment.topic is None:
            return
        part, broker = broker_of(deployment)
        part.start()
        remove_record(broker.bootstrap, deployment.topic, self._key)
        self._key = None
