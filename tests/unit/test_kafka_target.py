"""The URI of a Kafka log: what it takes, that it keeps its secrets, and what client errors mean."""

import pytest
from confluent_kafka import KafkaError, KafkaException

from belog.schemas.envelope import encode_event
from belog.schemas.errors import (
    BelogError,
    InvalidUri,
    LimitExceeded,
    Misconfigured,
    NotFound,
    OutcomeUnknown,
    Unavailable,
)
from belog.storage import open_log
from belog.storage.creation import log_created, new_uuid
from belog.storage.kafka_errors import delivery_error, start_error
from belog.storage.kafka_target import DELIVERY_TIMEOUT_MS, parse_uri

SECRET = "s3cret-value"  # noqa: S105 - made up


def test_uri_names_servers_topic_and_settings() -> None:
    target = parse_uri(
        "kafka://a.example:9092,[::1]:9093/builds.v1?security.protocol=SASL_SSL"
        f"&sasl.password={SECRET}&delivery.timeout.ms=5000&linger.ms=3"
    )
    assert target.servers == "a.example:9092,[::1]:9093"
    assert target.topic == "builds.v1"
    assert target.name == "kafka://a.example:9092,[::1]:9093/builds.v1"
    assert target.delivery_timeout_ms == 5000
    assert target.producer()["linger.ms"] == 3
    assert target.consumer()["sasl.password"] == SECRET
    assert "linger.ms" not in target.consumer()


def test_promises_rest_on_settings_that_no_uri_changes() -> None:
    target = parse_uri("kafka://h:1/t")
    consumer, producer = target.consumer(), target.producer()
    assert target.delivery_timeout_ms == DELIVERY_TIMEOUT_MS
    assert consumer["allow.auto.create.topics"] is False
    assert consumer["auto.offset.reset"] == "error"
    assert (producer["enable.idempotence"], producer["acks"]) == (True, "all")
    for setting in ("acks=1", "enable.idempotence=false", "auto.offset.reset=earliest"):
        with pytest.raises(InvalidUri, match="not a setting"):
            parse_uri(f"kafka://h:1/t?{setting}")


@pytest.mark.parametrize(
    "uri",
    [
        "kafka:",
        "kafka:///t",
        "kafka://h/t",
        "kafka://h:0/t",
        "kafka://h:65536/t",
        "kafka://h:x/t",
        "kafka://h:1",
        "kafka://h:1/",
        "kafka://h:1/a/b",
        "kafka://h:1/..",
        "kafka://h:1/a b",
        f"kafka://h:1/{'t' * 250}",
        "kafka://h:1/t#x",
        "kafka://" + ",".join(["h:1"] * 17) + "/t",
        "kafka://h:1/t?delivery.timeout.ms=1e3",
        "kafka://h:1/t?delivery.timeout.ms=99",
        "kafka://h:1/t?linger.ms=-1",
        "kafka://h:1/t?linger.ms=5&linger.ms=6",
        "kafka://h:1/t?linger.ms",
        "kafka://h:1/t?client.id=",
        f"kafka://user:{SECRET}@h:1/t",
        f"kafka://h:1/t?sasl.passwort={SECRET}",
    ],
)
def test_malformed_uri_is_refused_with_a_hint_and_no_secret(uri: str) -> None:
    with pytest.raises(InvalidUri) as caught:
        open_log(uri)
    assert SECRET not in str(caught.value)
    assert SECRET not in repr(caught.value)


def test_name_of_a_log_shows_no_setting() -> None:
    log = open_log(f"kafka://h:1/t?sasl.password={SECRET}")
    assert log.name == "kafka://h:1/t"


def test_error_of_a_client_shows_no_secret() -> None:
    target = parse_uri(f"kafka://h:1/t?sasl.password={SECRET}")
    error = KafkaException(KafkaError(KafkaError._INVALID_ARG, f"bad value {SECRET!r}"))  # noqa: SLF001
    assert SECRET not in str(start_error(error, target))
    assert isinstance(start_error(error, target), InvalidUri)
    away = KafkaException(KafkaError(KafkaError._TRANSPORT))  # noqa: SLF001
    assert "h:1" in str(start_error(away, target))
    assert isinstance(start_error(away, target), Unavailable)


@pytest.mark.parametrize(
    ("code", "means"),
    [
        (KafkaError._MSG_TIMED_OUT, OutcomeUnknown),  # noqa: SLF001
        (KafkaError._PURGE_INFLIGHT, OutcomeUnknown),  # noqa: SLF001
        (KafkaError._PURGE_QUEUE, OutcomeUnknown),  # noqa: SLF001
        (KafkaError._FATAL, OutcomeUnknown),  # noqa: SLF001
        (KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND, OutcomeUnknown),
        (KafkaError.MSG_SIZE_TOO_LARGE, LimitExceeded),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, Misconfigured),
        (KafkaError.INVALID_RECORD, Misconfigured),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, NotFound),
    ],
)
def test_what_is_not_surely_unwritten_is_unknown(code: int, means: type[BelogError]) -> None:
    event = log_created(new_uuid(), "here", 1)
    found = delivery_error(KafkaError(code), encode_event(event), "kafka://h:1/t")
    assert type(found) is means
    if isinstance(found, OutcomeUnknown):
        assert found.event_id == event.event_id


def test_an_index_is_no_setting_of_the_client() -> None:
    target = parse_uri("kafka://h:1/t?index=/var/cache/builds.db&client.id=me")
    assert target.index_path == "/var/cache/builds.db"
    assert "index" not in {**target.consumer(), **target.producer(), **target.settings}
    assert target.name == "kafka://h:1/t"
    assert parse_uri("kafka://h:1/t").index_path == ""
