"""Topics that can be a log: how they are made, and what is checked before one is used.

The promises of the log rest on settings of the topic; `check_topic` refuses those that break one
and names the command that mends it.
"""

import contextlib
import time
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.admin._topic import TopicDescription
from confluent_kafka.cimpl import NewTopic
from msgspec import Struct

from belog.schemas.errors import BelogError, Closed, Misconfigured, NotFound, Unavailable
from belog.storage.kafka_errors import LOGGER, as_kafka_error, log_error, start_error
from belog.storage.kafka_target import MESSAGE_BYTES_MIN, ClientConfig, KafkaTarget, parse_uri

__all__ = [
    "ANSWER_S",
    "TOPIC_MESSAGE_BYTES_MAX",
    "TopicAdmin",
    "TopicReport",
    "check_topic",
    "create_topic",
]

ANSWER_S: Final = 8.0
"""Longest wait for a broker's answer, seconds: calls that ask it end within ten, all told."""

SLICE_S: Final = 0.2
"""Longest wait for an answer, seconds, before a look whether the log was closed."""

REPLICATION_FACTOR: Final = 3
"""Copies of a new topic, where the cluster has as many brokers: one may fail while another is down
for maintenance."""

TOPIC_MESSAGE_BYTES_MAX: Final = 1_048_588
"""`max.message.bytes` of a new topic: Kafka's own default, set so that another default of the
broker does not matter."""

_RETENTION: Final = "cleanup.policy"
_TIMESTAMP: Final = "message.timestamp.type"
_MESSAGE_BYTES: Final = "max.message.bytes"
_IN_SYNC: Final = "min.insync.replicas"
_UNCLEAN: Final = "unclean.leader.election.enable"

T = TypeVar("T")


class TopicReport(Struct, frozen=True, kw_only=True):
    """What a topic that can be a log is like."""

    topic: str
    topic_id: str
    """Given by the cluster; another one when the topic is deleted and made anew."""
    replication_factor: int
    min_insync_replicas: int
    warnings: tuple[str, ...]
    """Settings that weaken a promise without breaking it, each with the command that mends it."""


class TopicAdmin:
    """Administrative requests about one topic. Thread-safe; every call blocks up to `ANSWER_S`."""

    def __init__(self, target: KafkaTarget) -> None:
        """Make a client; nothing is asked yet.

        Raises:
            InvalidUri: A setting of the target does not fit.
        """
        self._target = target
        self._closed = False
        config: ClientConfig = target.client() | {"error_cb": log_error}
        try:
            # The client leaves untyped what its futures give; `_result` is told.
            self._client: Any = AdminClient(config, logger=LOGGER)
        except KafkaException as error:
            raise start_error(error, target) from error

    def close(self) -> None:
        """End calls that wait within `SLICE_S`; the connections end with the object. Idempotent."""
        self._closed = True
        self._client.poll(0)

    def report(self) -> TopicReport:
        """Check the topic; see `check_topic`."""
        deadline = time.monotonic() + ANSWER_S
        self._reach(deadline)
        described = self._describe(deadline)
        resource = ConfigResource(ResourceType.TOPIC, self._target.topic)
        answers = self._client.describe_configs([resource], request_timeout=_left(deadline))
        answer: Future[dict[str, ConfigEntry]] = answers[resource]
        found = self._result(answer, deadline)
        return _checked(
            self._target, described, {name: entry.value or "" for name, entry in found.items()}
        )

    def topic_id(self, answer_s: float = ANSWER_S) -> str:
        """Ask which topic has the name now.

        Raises:
            NotFound: None has.
            Unavailable: No answer.
        """
        return str(self._describe(time.monotonic() + answer_s).topic_id)

    def create(self, replication_factor: int | None, config: Mapping[str, str]) -> None:
        """Create the topic, unless one of its name is there."""
        deadline = time.monotonic() + ANSWER_S
        brokers = self._reach(deadline)
        copies = replication_factor or min(REPLICATION_FACTOR, brokers)
        settings = {
            _RETENTION: "compact",
            _TIMESTAMP: "LogAppendTime",
            _MESSAGE_BYTES: str(TOPIC_MESSAGE_BYTES_MAX),
            # Two of three: an acknowledged record survives the loss of any broker.
            _IN_SYNC: "2" if copies > 1 else "1",
            _UNCLEAN: "false",
            **config,
        }
        topic = NewTopic(self._target.topic, 1, copies, config=settings)
        answers = self._client.create_topics(
            [topic], request_timeout=_left(deadline), operation_timeout=_left(deadline)
        )
        try:
            self._result(answers[self._target.topic], deadline)
        except BelogError as error:
            cause = as_kafka_error(error.__cause__) if error.__cause__ else None
            if cause is None or cause.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise _creation_error(self._target, cause, error) from error

    def _reach(self, deadline: float) -> int:
        """Return the number of brokers once one has answered."""
        try:
            return len(self._client.list_topics(timeout=_left(deadline)).brokers)
        except KafkaException as error:
            raise start_error(error, self._target) from error
        finally:
            # Serves the client's log lines, which would else wait for ever.
            self._client.poll(0)

    def _describe(self, deadline: float) -> TopicDescription:
        name = self._target.topic
        # A fresh topic may be known to the controller and not yet to every broker.
        answers = self._client.describe_topics(
            TopicCollection([name]), request_timeout=_left(deadline)
        )
        try:
            answer: Future[TopicDescription] = answers[name]
            return self._result(answer, deadline)
        except NotFound as error:
            raise NotFound(
                f"there is no topic {name!r}",
                log=self._target.name,
                hint=f"belog topic create --log '{self._target.name}'",
            ) from error

    def _result(self, answer: "Future[T]", deadline: float) -> T:
        while True:
            try:
                return answer.result(SLICE_S)
            except KafkaException as error:
                raise start_error(error, self._target) from error
            except TimeoutError as error:
                if self._closed:
                    raise Closed("the log was closed", log=self._target.name) from error
                if time.monotonic() > deadline + 1:
                    msg = f"no answer from {self._target.servers}"
                    raise Unavailable(msg, log=self._target.name) from error


def _left(deadline: float) -> float:
    return max(deadline - time.monotonic(), 0.1)


def _creation_error(target: KafkaTarget, cause: KafkaError | None, error: BelogError) -> BelogError:
    if cause is None or cause.code() not in {
        KafkaError.INVALID_CONFIG,
        KafkaError.INVALID_REPLICATION_FACTOR,
        KafkaError.POLICY_VIOLATION,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
    }:
        return error
    return Misconfigured(
        f"the cluster refuses the topic: {cause.str()}",
        setting="topic",
        hint="give other settings, or ask who runs the cluster",
        log=target.name,
    )


def _alter(target: KafkaTarget, setting: str, value: str) -> str:
    return (
        f"kafka-configs.sh --bootstrap-server {target.servers} --alter --entity-type topics"
        f" --entity-name {target.topic} --add-config {setting}={value}"
    )


def _checked(
    target: KafkaTarget, described: TopicDescription, config: Mapping[str, str]
) -> TopicReport:
    """Judge a topic by what the broker says of it. Pure."""
    partitions = len(described.partitions)
    if partitions != 1:
        raise Misconfigured(
            f"the topic has {partitions} partitions, and a log has exactly one order",
            setting="partitions",
            hint="partitions cannot be taken away: name a new topic, then belog topic create --log"
            f" 'kafka://{target.servers}/NEW-TOPIC'",
            log=target.name,
        )
    for setting, wanted, why in (
        (_RETENTION, "compact", "records would be deleted by age or size"),
        (_TIMESTAMP, "LogAppendTime", "ingest times would be the writers' own"),
    ):
        if config.get(setting) != wanted:
            raise Misconfigured(
                f"{setting} is {config.get(setting)!r} and must be {wanted!r}: {why}",
                setting=setting,
                hint=_alter(target, setting, wanted),
                log=target.name,
            )
    if int(config.get(_MESSAGE_BYTES, "0")) < MESSAGE_BYTES_MIN:
        raise Misconfigured(
            f"{_MESSAGE_BYTES} is {config.get(_MESSAGE_BYTES)} and must be at least"
            f" {MESSAGE_BYTES_MIN}: large events would not fit",
            setting=_MESSAGE_BYTES,
            hint=_alter(target, _MESSAGE_BYTES, str(TOPIC_MESSAGE_BYTES_MAX)),
            log=target.name,
        )
    copies = len(described.partitions[0].replicas)
    in_sync = int(config.get(_IN_SYNC, "1"))
    warnings: list[str] = []
    if copies > 1 and in_sync < 2:
        warnings.append(
            f"{_IN_SYNC} is {in_sync}: an acknowledged event may be on one broker only;"
            f" {_alter(target, _IN_SYNC, '2')}"
        )
    if config.get(_UNCLEAN) == "true":
        warnings.append(
            f"{_UNCLEAN} is true: a failure may drop acknowledged events;"
            f" {_alter(target, _UNCLEAN, 'false')}"
        )
    return TopicReport(
        topic=target.topic,
        topic_id=str(described.topic_id),
        replication_factor=copies,
        min_insync_replicas=in_sync,
        warnings=tuple(warnings),
    )


def check_topic(uri: str) -> TopicReport:
    """Check that a topic can be a log. Blocks, up to ten seconds where no broker answers.

    Raises:
        InvalidUri: The URI is malformed.
        Misconfigured: A setting breaks a promise; the hint is the command that mends it.
        NotFound: There is no such topic; the hint is the command that makes it.
        Unavailable: No broker answers. Retriable.
    """
    with contextlib.closing(TopicAdmin(parse_uri(uri))) as admin:
        return admin.report()


def create_topic(
    uri: str,
    *,
    replication_factor: int | None = None,
    config: Mapping[str, str] | None = None,
) -> TopicReport:
    """Create the topic of a log and check it. Idempotent: leaves a fitting one alone.

    Args:
        uri: The log's URI.
        replication_factor: Copies; by default three, or as many as there are brokers.
        config: Further settings of the topic, over those that a log needs.

    Raises:
        InvalidUri: The URI is malformed.
        Misconfigured: The cluster refuses the settings, or the topic was there with others.
        Unavailable: No broker answers. Retriable.
    """
    with contextlib.closing(TopicAdmin(parse_uri(uri))) as admin:
        admin.create(replication_factor, config or {})
        return _await_report(admin)


def _await_report(admin: TopicAdmin) -> TopicReport:
    deadline = time.monotonic() + ANSWER_S
    while True:
        try:
            return admin.report()
        except NotFound:
            # Brokers learn of a new topic one after the other.
            if time.monotonic() >= deadline:
                raise
            time.sleep(_SETTLE_S)


_SETTLE_S: Final = 0.05
"""Pause between two looks at a topic that was just made, seconds."""
