"""Topics that can be a log, and the refusal of those that cannot."""

import time
from collections.abc import Callable, Mapping

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from belog.schemas.errors import InvalidUri, Misconfigured, NotFound, Unavailable
from belog.storage import open_log
from belog.storage.kafka_target import MESSAGE_BYTES_MIN
from belog.storage.kafka_topic import check_topic, create_topic
from tests.servers import Broker, free_port

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

ANSWER_S = 20.0
FITTING = {
    "cleanup.policy": "compact",
    "message.timestamp.type": "LogAppendTime",
    "max.message.bytes": str(MESSAGE_BYTES_MIN),
}


def make(
    broker: Broker, topic: str, config: Mapping[str, str] | None = None, *, partitions: int = 1
) -> str:
    settings = {**FITTING, **(config or {})}
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    new = NewTopic(topic, partitions, 1, config=settings)
    admin.create_topics([new])[topic].result(ANSWER_S)
    return f"{broker.uri}/{topic}"


def test_created_topic_passes_the_checks_and_is_left_alone(broker: Broker, topic_name: str) -> None:
    uri = f"{broker.uri}/{topic_name}"
    report = create_topic(uri, config={"segment.ms": "1000"})
    assert (report.topic, report.replication_factor) == (topic_name, 1)
    assert report.warnings == ()
    assert create_topic(uri) == check_topic(uri) == report


def test_topic_that_just_fits_passes(broker: Broker, topic_name: str) -> None:
    assert check_topic(make(broker, topic_name)).warnings == ()


@pytest.mark.parametrize(
    ("config", "setting", "mended_by"),
    [
        ({"cleanup.policy": "delete"}, "cleanup.policy", "cleanup.policy=compact"),
        ({"cleanup.policy": "compact,delete"}, "cleanup.policy", "cleanup.policy=compact"),
        (
            {"message.timestamp.type": "CreateTime"},
            "message.timestamp.type",
            "message.timestamp.type=LogAppendTime",
        ),
        (
            {"max.message.bytes": str(MESSAGE_BYTES_MIN - 1)},
            "max.message.bytes",
            "max.message.bytes=1048588",
        ),
    ],
)
def test_setting_that_breaks_a_promise_is_refused_with_the_mending_command(
    broker: Broker, topic_name: str, config: dict[str, str], setting: str, mended_by: str
) -> None:
    uri = make(broker, topic_name, config)
    for opening in (lambda: check_topic(uri), lambda: open_log(uri).initialize()):
        with pytest.raises(Misconfigured) as caught:
            opening()
        assert caught.value.setting == setting
        assert caught.value.hint == (
            f"kafka-configs.sh --bootstrap-server {broker.bootstrap} --alter"
            f" --entity-type topics --entity-name {topic_name} --add-config {mended_by}"
        )


def test_second_partition_is_refused(broker: Broker, topic_name: str) -> None:
    uri = make(broker, topic_name, partitions=2)
    with pytest.raises(Misconfigured, match="2 partitions") as caught:
        open_log(uri).initialize()
    assert caught.value.setting == "partitions"
    assert "belog topic create" in caught.value.hint
    with pytest.raises(Misconfigured, match="2 partitions"):
        create_topic(uri)


def test_unclean_election_is_a_warning(broker: Broker, topic_name: str) -> None:
    uri = make(broker, topic_name, {"unclean.leader.election.enable": "true"})
    (warning,) = check_topic(uri).warnings
    assert "--add-config unclean.leader.election.enable=false" in warning
    with open_log(uri) as log:
        log.initialize()


def test_opening_never_creates_the_topic(
    new_broker: Callable[..., Broker], topic_name: str
) -> None:
    own = new_broker(config={"auto.create.topics.enable": "true"})
    uri = f"{own.uri}/{topic_name}"
    with open_log(uri) as log:
        for opening in (log.initialize, log.identify, lambda: check_topic(uri)):
            with pytest.raises(NotFound) as caught:
                opening()
            assert caught.value.hint == f"belog topic create --log '{uri}'"
    admin = AdminClient({"bootstrap.servers": own.bootstrap})
    assert topic_name not in admin.list_topics(timeout=ANSWER_S).topics


def test_refused_creation_says_why(broker: Broker, topic_name: str) -> None:
    uri = f"{broker.uri}/{topic_name}"
    with pytest.raises(Misconfigured, match="replication factor"):
        create_topic(uri, replication_factor=7)
    with pytest.raises(Misconfigured, match=r"segment\.ms"):
        create_topic(uri, config={"segment.ms": "never"})
    with pytest.raises(NotFound):
        check_topic(uri)


def test_nobody_there_is_said_within_ten_seconds(capfd: pytest.CaptureFixture[str]) -> None:
    server = f"127.0.0.1:{free_port()}"
    for opening in (
        lambda: open_log(f"kafka://{server}/t").initialize(),
        lambda: check_topic(f"kafka://{server}/t"),
    ):
        started = time.monotonic()
        with pytest.raises(Unavailable, match=server):
            opening()
        assert time.monotonic() - started < 10
    assert server not in capfd.readouterr().err


def test_client_settings_that_do_not_fit_are_refused_without_secrets() -> None:
    uri = "kafka://127.0.0.1:1/t?security.protocol=NONE&sasl.password=s3cret-value"
    with pytest.raises(InvalidUri, match=r"security\.protocol") as caught:
        open_log(uri).initialize()
    assert "s3cret" not in str(caught.value)
