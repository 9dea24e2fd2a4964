"""What errors of the Kafka client mean to the log, and where its messages go."""

import logging
from typing import Final

from confluent_kafka import KafkaError, KafkaException

from belog.schemas.envelope import decode_event
from belog.schemas.errors import (
    BelogError,
    Corrupt,
    InvalidUri,
    LimitExceeded,
    Misconfigured,
    NewerFormat,
    NotFound,
    OutcomeUnknown,
    Unavailable,
)
from belog.storage.kafka_target import MESSAGE_BYTES_MIN, KafkaTarget, without_secrets

__all__ = [
    "LOGGER",
    "TOPIC_FORGOTTEN",
    "TOPIC_GONE",
    "as_kafka_error",
    "delivery_error",
    "log_error",
    "read_error",
    "start_error",
]

LOGGER: Final = logging.getLogger("belog.storage.kafka")
"""Where messages of the client libraries go; never to the terminal by themselves."""
LOGGER.addHandler(logging.NullHandler())

TOPIC_FORGOTTEN: Final = frozenset(
    {
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001 - the client's own name for its local errors
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 - as above
    }
)
"""What a client says that met a broker before that knew the topic again; it may stay with it."""

TOPIC_GONE: Final = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError.INCONSISTENT_TOPIC_ID,
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 - the client's own name for its local errors
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
    }
)
"""The topic that was open is not there any more, or not as it was."""

_DENIED: Final = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
    }
)
_UNFIT: Final = frozenset({KafkaError._INVALID_ARG, KafkaError._CONFLICT})  # noqa: SLF001 - as above
_TOO_LARGE: Final = frozenset(
    {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE, KafkaError.INVALID_MSG_SIZE}
)
_REFUSED: Final = frozenset(
    {
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        KafkaError.INVALID_REQUIRED_ACKS,
    }
)


def log_error(error: KafkaError) -> None:
    """Note an error that the client reports outside any call; calls report what concerns them.

    The client logs the same, and leaves out repetitions there.
    """
    LOGGER.debug("%s", error.str())


def as_kafka_error(error: BaseException) -> KafkaError | None:
    """Return what the client says inside an exception, if it is one of the client's."""
    if isinstance(error, KafkaException) and error.args and isinstance(error.args[0], KafkaError):
        return error.args[0]
    return None


def _denied(error: KafkaError, log: str) -> Misconfigured:
    return Misconfigured(
        f"the broker refuses this user: {error.str()}",
        setting="acl",
        hint="grant READ, WRITE, DESCRIBE and DESCRIBE_CONFIGS on the topic (kafka-acls.sh --add)",
        log=log,
    )


def start_error(error: KafkaException, target: KafkaTarget) -> BelogError:
    """Return what an error of a client's construction or of an administrative request means."""
    known = as_kafka_error(error)
    text = without_secrets(known.str() if known else str(error), target)
    if known is not None and known.code() in TOPIC_GONE:
        return NotFound(f"the topic is not there: {text}", log=target.name)
    if known is not None and known.code() in _DENIED:
        return _denied(known, target.name)
    if known is not None and known.code() in _UNFIT:
        return InvalidUri(f"the settings of the URI do not fit: {text}", log=target.name)
    return Unavailable(
        f"no answer from {target.servers}: {text}",
        log=target.name,
        hint="is the broker running, and do host, port and security settings fit?",
    )


def read_error(error: KafkaError, log: str) -> BelogError:
    """Return what an error of a read means, where it is not about the position."""
    if error.code() in _DENIED:
        return _denied(error, log)
    return Unavailable(f"the log cannot be read: {error.str()}", log=log)


def delivery_error(error: KafkaError, value: bytes | None, log: str) -> BelogError:
    """Return what a failed delivery means.

    A client that gave up waiting cannot say whether the broker wrote the record, and neither can
    one whose producer failed for good: such outcomes are unknown.
    """
    code = error.code()
    if code in _TOO_LARGE:
        return too_large(value)
    if code in _DENIED:
        return _denied(error, log)
    if code in TOPIC_GONE:
        return NotFound(f"the topic is not there any more: {error.str()}", log=log)
    if code in _REFUSED:
        return Misconfigured(
            f"the broker refuses the record: {error.str()}",
            setting="topic",
            hint="see which setting breaks the log: belog topic check",
            log=log,
        )
    return OutcomeUnknown(f"no acknowledgement: {error.str()}", event_id=_event_id(value), log=log)


def too_large(value: bytes | None) -> LimitExceeded:
    """Return the refusal of a record that no topic of the log has to take."""
    return LimitExceeded(
        "record",
        limit="MESSAGE_BYTES_MIN",
        limit_value=MESSAGE_BYTES_MIN,
        value=len(value or b""),
    )


def _event_id(value: bytes | None) -> bytes:
    """Return the id of the event in a record value, empty where it holds none."""
    try:
        return decode_event(value or b"").event_id
    except (Corrupt, NewerFormat):
        return b""
