"""The servers themselves, with every provider that can be had here."""

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from redis import RedisError

from tests.servers import Broker, NotOursError, Persistence, Postgres, Provider, Redis, eventually
from tests.servers.containers import image_of
from tests.servers.runner import ExternalRunner

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

ANSWER_S = 20.0


def providers(name: str) -> list[Provider]:
    """A machine without a container engine has one provider, and that is no failure."""
    return ["local", "docker"] if image_of(name) else ["local"]


@pytest.fixture(params=providers("kafka"))
def own_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    with Broker.create({"log.segment.bytes": "1048577"}, provider=request.param) as server:
        yield server


@pytest.fixture(params=providers("redis"))
def redis_provider(request: pytest.FixtureRequest) -> Provider:
    provider: Provider = request.param
    return provider


@pytest.fixture(params=providers("postgres"))
def postgres_provider(request: pytest.FixtureRequest) -> Provider:
    provider: Provider = request.param
    return provider


def write(bootstrap: str, topic: str, value: bytes) -> int:
    """Produce one record and return the offset that its delivery report names."""
    offsets: list[int | None] = []
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    producer.produce(
        topic, value, partition=0, on_delivery=lambda _, message: offsets.append(message.offset())
    )
    assert producer.flush(ANSWER_S) == 0
    (offset,) = offsets
    assert offset is not None
    return offset


def read(bootstrap: str, topic: str, count: int) -> list[bytes | None]:
    config = {"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    consumer = Consumer(config)
    try:
        consumer.subscribe([topic])
        return [message.value() for message in consumer.consume(count, timeout=ANSWER_S)]
    finally:
        consumer.close()


def make_topic(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(ANSWER_S)


def test_session_broker_keeps_a_record(broker: Broker, topic_name: str) -> None:
    make_topic(broker.bootstrap, topic_name)
    assert write(broker.bootstrap, topic_name, b"one") == 0
    assert read(broker.bootstrap, topic_name, 1) == [b"one"]


def test_broker_makes_no_topic_by_itself(broker: Broker, topic_name: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    assert admin.list_topics(topic_name, timeout=ANSWER_S).topics[topic_name].error is not None
    assert topic_name not in admin.list_topics(timeout=ANSWER_S).topics


def test_broker_keeps_records_over_kill_stop_and_pause(own_broker: Broker, topic_name: str) -> None:
    make_topic(own_broker.bootstrap, topic_name)
    assert write(own_broker.bootstrap, topic_name, b"before the kill") == 0
    own_broker.kill()
    assert not own_broker.is_ready()
    own_broker.start()
    assert write(own_broker.bootstrap, topic_name, b"after the kill") == 1
    own_broker.stop()
    own_broker.start()
    own_broker.pause()
    assert not own_broker.is_ready()
    own_broker.resume()
    own_broker.wait_ready()
    values = read(own_broker.bootstrap, topic_name, 2)
    assert values == [b"before the kill", b"after the kill"]


def test_session_redis_keeps_a_key(redis_server: Redis, redis_prefix: str) -> None:
    with redis_server.connect() as client:
        client.set(f"{redis_prefix}a", "1")
        assert client.get(f"{redis_prefix}a") == b"1"


@pytest.mark.parametrize(("persistence", "kept"), [("append", b"1"), ("none", None)])
def test_redis_keeps_what_its_persistence_says(
    redis_provider: Provider, persistence: Persistence, kept: bytes | None
) -> None:
    with Redis.create(persistence=persistence, provider=redis_provider) as server:
        set_key(server)
        server.restart()
        with server.connect() as client:
            assert client.get("key") == kept


def test_redis_dump_is_kept_over_a_kill(redis_provider: Provider) -> None:
    with Redis.create(persistence="dump", provider=redis_provider) as server:
        set_key(server)
        server.dump()
        server.restart()
        with server.connect() as client:
            assert client.get("key") == b"1"
        server.flush()
        with server.connect() as client:
            assert client.dbsize() == 0


def set_key(server: Redis) -> None:
    with server.connect() as client:
        client.set("key", "1")


def test_paused_redis_answers_after_resume(redis_provider: Provider) -> None:
    with Redis.create(provider=redis_provider) as server:
        server.pause()
        assert not server.is_ready()
        server.resume()
        server.wait_ready()


def test_new_redis_is_closed_after_the_test(new_redis: Callable[..., Redis]) -> None:
    first, second = new_redis(), new_redis()
    assert first.port != second.port
    first.close()
    with pytest.raises(RedisError), first.connect() as client:
        client.ping()
    assert second.is_ready()


def test_session_postgres_answers(postgres_server: Postgres, postgres_schema: str) -> None:
    with postgres_server.connect() as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
        found = "SELECT count(*) FROM pg_namespace WHERE nspname = %s"
        assert connection.execute(found, (postgres_schema,)).fetchone() == (1,)


def test_postgres_keeps_rows_over_kill_and_stop(postgres_provider: Provider) -> None:
    with Postgres.create(password="a:b@c/d", provider=postgres_provider) as server:  # noqa: S106
        with server.connect() as connection:
            connection.execute("CREATE TABLE kept (n int)")
            connection.execute("INSERT INTO kept VALUES (1)")
        server.kill()
        assert not server.is_ready()
        server.start()
        server.stop()
        server.start()
        with server.connect() as connection:
            assert connection.execute("SELECT n FROM kept").fetchall() == [(1,)]


def test_failed_start_quotes_the_log() -> None:
    server = Broker.create({"listeners": "nonsense"}, provider="local")
    with pytest.raises(TimeoutError, match=r"exited with 1:(.|\n)*nonsense"), server:
        pass


def test_external_server_is_not_killed() -> None:
    server = Redis(ExternalRunner(), 1, "redis://127.0.0.1:1/0")
    with pytest.raises(NotOursError, match="SIGKILL"):
        server.kill()
    server.close()


def test_eventually_gives_the_last_answer() -> None:
    with pytest.raises(TimeoutError, match=r"until never; last: 0"):
        eventually(lambda: 0, "never", timeout_s=0.01)
    with pytest.raises(TimeoutError, match=r"it died"):
        eventually(lambda: 0, unless=lambda: "it died")
    answers = iter([0, 0, 3])
    assert eventually(lambda: next(answers)) == 3
