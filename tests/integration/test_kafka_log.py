"""A Kafka log on a real broker: what it holds, and what happens when its topic is meddled with."""

import os
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from uuid import UUID

import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType

from belog.schemas.envelope import Event, encode_event
from belog.schemas.errors import (
    Closed,
    Diverged,
    IndexConflict,
    InvalidConfiguration,
    InvalidUri,
    LimitExceeded,
    LogReplaced,
    LogTruncated,
    NotFound,
    ReplicaRefused,
    Unsupported,
)
from belog.schemas.filters import ALL
from belog.schemas.fold import Record
from belog.schemas.limits import EVENT_BYTES_MAX
from belog.schemas.replica import ReplicaRecord, encode_replica
from belog.service.log_source import LogSource
from belog.storage.interface import CopiedRecord, LogIdentity, SendReport
from belog.storage.kafka import TOPIC_ANSWER_S, TOPIC_CHECK_S, KafkaLog, from_uri
from belog.storage.kafka_target import parse_uri
from belog.storage.kafka_topic import TopicAdmin, create_topic
from tests.examples import event
from tests.servers import Broker, eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

ANSWER_S = 20.0
QUICK_COMPACTION = {
    "segment.ms": "1000",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "100",
    "max.compaction.lag.ms": "1000",
}
OTHER_LOG = UUID(int=7)


@pytest.fixture
def uri(broker: Broker, topic_name: str) -> str:
    """The URI of a fitting empty topic."""
    name = f"{broker.uri}/{topic_name}"
    create_topic(name)
    return name


@pytest.fixture
def opened(uri: str) -> Iterator[Callable[..., KafkaLog]]:
    """Opens logs on the topic that are closed in the end."""
    with ExitStack() as stack:

        def make(**options: object) -> KafkaLog:
            log = stack.enter_context(from_uri(uri))
            log.initialize(**options)  # type: ignore[arg-type]
            return log

        yield make


def observed(number: int) -> Event:
    return event("v1.partition.observed", f"data://example/{number}", n=number + 1)


def raw_write(broker: Broker, topic: str, value: bytes | None, key: bytes) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    producer.produce(topic, value, key, 0)
    assert producer.flush(ANSWER_S) == 0


def recreate(broker: Broker, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics([topic])[topic].result(ANSWER_S)
    eventually(
        lambda: topic not in admin.list_topics(timeout=ANSWER_S).topics, "the topic is deleted"
    )
    create_topic(f"{broker.uri}/{topic}")


def set_policy(admin: AdminClient, topic: str, policy: str) -> None:
    entry = ConfigEntry("cleanup.policy", policy, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    for answer in admin.incremental_alter_configs([resource]).values():
        answer.result(ANSWER_S)


def scan_all(log: KafkaLog, limit: int = 10_000) -> list[Record]:
    found: list[Record] = []
    while records := log.scan(found[-1].position + 1 if found else 0, limit):
        found += records
    return found


def test_first_event_names_the_log(opened: Callable[..., KafkaLog]) -> None:
    first = opened(instance="here")
    identity = first.initialize()
    assert identity.instance == "here"
    assert first.next_position() == 1
    second = opened(log_id=identity.log_id)
    assert second.identify() == second.initialize() == identity
    with pytest.raises(LogReplaced):
        opened(log_id=OTHER_LOG)
    with pytest.raises(LogReplaced):
        opened(replica=True)
    assert first.next_position() == 1


def test_of_two_that_initialize_at_once_one_names_the_log(
    uri: str, opened: Callable[..., KafkaLog]
) -> None:
    logs = [from_uri(uri) for _ in range(4)]
    # All see the empty topic before any of them writes.
    assert [log.identify() for log in logs] == [None] * 4
    barrier = threading.Barrier(len(logs))
    identities: list[object] = []

    def initialize(log: KafkaLog) -> None:
        barrier.wait()
        identities.append(log.initialize())

    threads = [threading.Thread(target=initialize, args=(log,)) for log in logs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(identities) == 4
    assert len(set(map(str, identities))) == 1
    log = opened()
    assert str(log.initialize()) == str(identities[0])
    assert log.statistics().events == 1
    records = scan_all(log)
    created = [record for record in records if record.value is not None]
    tombstones = {record.key for record in records if record.value is None}
    assert {record.key for record in created[1:]} == tombstones
    for other in logs:
        other.close()


def test_topic_of_something_else_is_no_log(broker: Broker, topic_name: str, uri: str) -> None:
    raw_write(broker, topic_name, b"not an event", b"k")
    with from_uri(uri) as log:
        with pytest.raises(InvalidUri, match="none of them begins a log"):
            log.initialize()
        with pytest.raises(NotFound, match="not initialized"):
            log.scan(0)


def test_appends_land_in_order_and_read_back(opened: Callable[..., KafkaLog]) -> None:
    log = opened()
    receipts = log.append_batch([observed(n) for n in range(2_500)])
    assert [r.index for r in receipts if not isinstance(r, Exception)] == list(range(1, 2_501))
    page = log.read(1, limit=1_000)
    assert [(e.index, e.event) for e in page.events] == [(n + 1, observed(n)) for n in range(1_000)]
    assert (page.next_idx, page.has_more) == (1_001, True)
    assert log.read(2_400).next_idx == 2_501
    created_at = {r.index: r.created_at for r in receipts if not isinstance(r, Exception)}
    assert {e.index: e.created_at for e in log.read(1).events} == created_at
    stored = log.get(2_000)
    assert stored is not None
    assert stored.event == observed(1_999)
    assert log.get_by_id(observed(7).event_id) == log.get(8)
    assert log.get(2_501) is None
    for call in (
        lambda: log.append(observed(1), at=1),
        lambda: log.append_batch([observed(1), observed(2)], atomic=True),
    ):
        with pytest.raises(Unsupported):
            call()
    assert log.next_position() == 2_501


def test_scans_of_any_place_and_size_agree(opened: Callable[..., KafkaLog], seed: int) -> None:
    log = opened()
    log.append_batch([observed(n) for n in range(4_000)])
    records = scan_all(log)
    assert [record.position for record in records] == list(range(4_001))
    draw = random.Random(seed)
    position = 0
    for _ in range(300):
        if draw.random() < 0.4:
            position = draw.randrange(4_100)
        limit = draw.choice([1, 7, 100, 101, 1_000, 10_000])
        found = log.scan(position, limit)
        assert found == records[position : position + limit]
        position += draw.choice([0, 1, len(found)])


def test_what_was_acknowledged_is_scanned_at_once(opened: Callable[..., KafkaLog]) -> None:
    writer, reader = opened(), opened()
    for n in range(300):
        index = writer.append(observed(n)).index
        assert [record.position for record in reader.scan(index)] == [index]
        assert writer.end().next_idx == index + 1


def test_a_command_is_told_that_its_cursor_is_past_the_end(
    opened: Callable[..., KafkaLog], uri: str
) -> None:
    end = opened().next_position()
    source = LogSource(uri, None, None)
    assert source.page(end, ALL, 10).events == ()
    with pytest.raises(LogTruncated, match=f"ends at {end}, the cursor is at 99"):
        source.page(99, ALL, 10)
    with pytest.raises(LogTruncated, match=f"ends at {end}, the cursor is at 99"):
        next(source.follow(99, ALL))


def test_nothing_new_is_said_promptly(opened: Callable[..., KafkaLog]) -> None:
    log = opened()
    log.scan(0)
    started = time.monotonic()
    for _ in range(50):
        assert log.scan(1) == []
        assert log.scan(500) == []
    assert time.monotonic() - started < 5


def test_many_threads_scan_and_wait_at_once(opened: Callable[..., KafkaLog]) -> None:
    log = opened()
    log.append_batch([observed(n) for n in range(3_000)])
    seen: list[list[int]] = []

    def follow() -> None:
        positions: list[int] = []
        while len(positions) < 3_101:
            at = positions[-1] + 1 if positions else 0
            positions += [record.position for record in log.scan(at, 700)]
            log.wait(positions[-1] + 1, 0.5)
        seen.append(positions)

    threads = [threading.Thread(target=follow) for _ in range(8)]
    for thread in threads:
        thread.start()
    for n in range(100):
        log.append(observed(3_000 + n))
    for thread in threads:
        thread.join(60)
    assert seen == [list(range(3_101))] * 8


def test_wait_ends_at_arrival_at_the_time_and_at_close(opened: Callable[..., KafkaLog]) -> None:
    log, other = opened(), opened()
    started = time.monotonic()
    assert not log.wait(1, 0.3)
    assert 0.25 < time.monotonic() - started < 2
    assert log.wait(0, 10)
    found: list[object] = []

    def wait(position: int) -> None:
        try:
            found.append((position, log.wait(position, 60)))
        except Closed:
            found.append((position, "closed"))

    threads = [threading.Thread(target=wait, args=(p,)) for p in (9, 1, 2, 9)]
    for thread in threads:
        thread.start()
    other.append(observed(1))
    eventually(lambda: (1, True) in found, "the first wait ends")
    other.append(observed(2))
    eventually(lambda: (2, True) in found, "the second wait ends")
    started = time.monotonic()
    log.close()
    for thread in threads:
        thread.join(10)
    assert time.monotonic() - started < 2
    assert found[2:] == [(9, "closed")] * 2
    for call in (log.next_position, log.end, lambda: log.scan(0), lambda: log.append(observed(3))):
        with pytest.raises(Closed):
            call()
    log.close()


def test_garbage_is_void_and_the_rest_goes_on(
    broker: Broker, topic_name: str, opened: Callable[..., KafkaLog]
) -> None:
    log = opened()
    for value in (b"", b"garbage", encode_event(observed(1))[:-5], os.urandom(500_000), None):
        raw_write(broker, topic_name, value, os.urandom(3))
    log.append(observed(2))
    statistics = log.statistics()
    assert (statistics.events, statistics.void, statistics.tombstones) == (2, 4, 1)
    assert [stored.index for stored in log.read().events] == [0, 6]
    assert log.get(3) is None


def test_oversize_record_is_refused_and_the_largest_fits(opened: Callable[..., KafkaLog]) -> None:
    log = opened()
    reports: list[SendReport] = []
    with pytest.raises(LimitExceeded):
        log.send(os.urandom(16), bytes(EVENT_BYTES_MAX + 10_000), reports.append)
    log.send(os.urandom(16), os.urandom(EVENT_BYTES_MAX + 256), reports.append)
    eventually(lambda: reports, "the record is reported")
    assert reports[0].error is None
    assert reports[0].position == 1
    assert len(log.scan(1)[0].value or b"") == EVENT_BYTES_MAX + 256


def test_reports_come_once_in_order_of_positions(opened: Callable[..., KafkaLog]) -> None:
    log = opened()
    reports: list[tuple[int, SendReport]] = []

    def take(n: int, report: SendReport) -> None:
        reports.append((n, report))

    for n in range(5_000):
        log.send(n.to_bytes(16), b"x", partial(take, n))
    eventually(lambda: len(reports) == 5_000, "all are reported")
    assert [n for n, _ in reports] == list(range(5_000))
    assert [report.position for _, report in reports] == list(range(1, 5_001))
    records = scan_all(log)[1:]
    assert [r.key for r in records] == [n.to_bytes(16) for n in range(5_000)]
    assert [r.created_at for r in records] == [report.created_at for _, report in reports]


def test_scan_reads_over_what_compaction_removed(broker: Broker, topic_name: str) -> None:
    uri = f"{broker.uri}/{topic_name}"
    create_topic(uri, config=QUICK_COMPACTION)
    with from_uri(uri) as log, from_uri(uri) as late:
        log.initialize()
        keys = [os.urandom(16) for _ in range(40)]
        reports: list[SendReport] = []
        for n in range(40):
            log.append(observed(n))
            log.send(keys[n], b"void", reports.append)
        eventually(lambda: len(reports) == 40, "the void records are written")
        before = log.read().events
        assert [stored.index for stored in before] == [0, *range(1, 81, 2)]
        root = log.end().root
        log.tombstone(keys)
        number = 40

        def rolled() -> bool:
            # Only a closed segment is compacted, and only an append closes one.
            nonlocal number
            log.append(observed(number))
            number += 1
            with from_uri(uri) as fresh:
                fresh.initialize()
                return all(r.value not in {b"void", None} for r in scan_all(fresh)[:-3])

        eventually(rolled, "void records and tombstones vanish", timeout_s=90)
        late.initialize()
        positions = [record.position for record in scan_all(late, 50)]
        assert set(range(2, 122, 2)).isdisjoint(positions[:-3])
        assert late.read(limit=41).events == before
        assert late.get(2) is None
        assert late.get(3) == log.get(3) == before[2]
        assert log.read(limit=41).events == before
        assert [r.position for r in late.scan(40, 2)] == [41, 43]
        assert late.end() == log.end()
        assert late.end().root != root
        assert late.statistics().gaps >= 79


def test_recreated_topic_is_noticed_by_its_shorter_end(
    broker: Broker, topic_name: str, opened: Callable[..., KafkaLog]
) -> None:
    log = opened()
    log.append_batch([observed(n) for n in range(20)])
    log.end()
    recreate(broker, topic_name)
    with pytest.raises(LogReplaced, match="made anew"):
        log.scan(21)
    with pytest.raises(LogReplaced, match="made anew"):
        log.next_position()
    with pytest.raises(LogReplaced, match="made anew"):
        log.wait(21, 5)


def test_recreated_topic_that_grew_is_noticed_in_time(
    broker: Broker, topic_name: str, opened: Callable[..., KafkaLog]
) -> None:
    log = opened()
    log.append_batch([observed(n) for n in range(20)])
    log.end()
    recreate(broker, topic_name)
    with from_uri(log.name) as other:
        other.initialize()
        other.append_batch([observed(n) for n in range(40)])

    def refused() -> bool:
        try:
            log.scan(21)
        except LogReplaced:
            return True
        return False

    eventually(refused, "the reader notices", timeout_s=2 * TOPIC_CHECK_S)


def test_what_was_read_is_not_held_up_by_a_controller_that_does_not_answer(
    opened: Callable[..., KafkaLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = opened()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        uri = f"kafka://127.0.0.1:{silent.getsockname()[1]}/topic"
        admin = TopicAdmin(parse_uri(uri))
        monkeypatch.setattr(log, "_admin", admin)
        monkeypatch.setattr(log, "_topic_checked", 0.0)
        began = time.monotonic()
        assert len(log.scan(0)) == 1
        assert time.monotonic() - began < 2 * TOPIC_ANSWER_S


def test_send_into_a_recreated_topic_is_reported_as_such(
    broker: Broker, topic_name: str, opened: Callable[..., KafkaLog]
) -> None:
    log = opened()
    log.append_batch([observed(n) for n in range(20)])
    recreate(broker, topic_name)
    result = log.append_batch([observed(30)])[0]
    assert isinstance(result, LogTruncated | NotFound)


def test_deleted_topic_is_noticed(
    broker: Broker, topic_name: str, opened: Callable[..., KafkaLog]
) -> None:
    log = opened()
    log.end()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics([topic_name])[topic_name].result(ANSWER_S)
    with pytest.raises(LogReplaced, match="deleted"):
        eventually(lambda: log.scan(1) != [], "the reader notices", timeout_s=15)


def test_deleted_beginning_is_never_skipped(
    broker: Broker, topic_name: str, uri: str, opened: Callable[..., KafkaLog]
) -> None:
    log = opened()
    log.append_batch([observed(n) for n in range(20)])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    start = TopicPartition(topic_name, 0, 8)
    # The broker deletes no beginning of a compacted topic, so somebody changed the policy.
    set_policy(admin, topic_name, "delete")
    eventually(
        lambda: admin.delete_records([start])[start].result(ANSWER_S) is not None,
        "the new policy is known",
        ignoring=(KafkaException,),
    )
    set_policy(admin, topic_name, "compact")
    for position, limit in ((0, 10_000), (7, 1)):
        with pytest.raises(LogTruncated, match="before 8 were deleted"):
            log.scan(position, limit)
    assert [record.position for record in log.scan(8)] == list(range(8, 21))
    with from_uri(uri) as late, pytest.raises(LogTruncated):
        late.initialize()


def replica_record(index: int, previous: int, value: Event) -> CopiedRecord:
    wrapped = ReplicaRecord(OTHER_LOG.bytes, index, previous, index * 1000, encode_event(value))
    return CopiedRecord(index, index * 1000, encode_replica(wrapped))


def origin_records(indices: list[int]) -> list[CopiedRecord]:
    created = event(
        "v1.system.log_created",
        str(OTHER_LOG),
        {"log_id": str(OTHER_LOG), "instance": "far", "lifecycle_version": 1},
        n=9_999,
    )
    previous = [-1, *indices]
    return [
        replica_record(index, previous[n], observed(index) if index else created)
        for n, index in enumerate(indices)
    ]


def test_replica_keeps_the_indices_of_its_origin(opened: Callable[..., KafkaLog], uri: str) -> None:
    with from_uri(uri) as nameless, pytest.raises(InvalidConfiguration):
        nameless.initialize(replica=True)
    log = opened(log_id=OTHER_LOG, replica=True)
    assert log.next_position() == 0
    records = origin_records([0, 3, 4, 9, 50])
    log.copy_records(records[:3], after=-1)
    with pytest.raises(IndexConflict):
        log.copy_records(records[3:], after=3)
    log.copy_records(records[3:], after=4)
    with pytest.raises(ReplicaRefused):
        log.append(observed(1))
    again = opened(log_id=OTHER_LOG, replica=True)
    assert again.identify() == LogIdentity(OTHER_LOG, "far", is_replica=True)
    assert [stored.index for stored in again.read(1).events] == [3, 4, 9, 50]
    assert [stored.index for stored in again.read(5, limit=1).events] == [9]
    stored = again.get(9)
    assert stored is not None
    assert (stored.index, stored.created_at, stored.event) == (9, 9000, observed(9))
    assert again.get(5) is None
    assert again.end() == log.end()
    assert again.end().next_idx == 51
    assert not again.wait_for_index(51, 0.1)
    assert again.wait_for_index(50, 0.1)


def test_of_two_sinks_the_second_is_told_and_cleans_up(opened: Callable[..., KafkaLog]) -> None:
    one, two = (opened(log_id=OTHER_LOG, replica=True) for _ in range(2))
    records = origin_records([0, 1, 2, 3])
    one.copy_records(records[:2], after=-1)
    two.end()
    one.copy_records(records[2:], after=1)
    with pytest.raises(IndexConflict):
        two.copy_records(records[2:], after=1)
    assert two.statistics().events == 4
    assert two.next_position() == 4


def test_migration_keeps_indices_and_fills_holes(opened: Callable[..., KafkaLog]) -> None:
    log = opened()
    copied = [CopiedRecord(n, n, encode_event(observed(n))) for n in (1, 2, 5, 9)]
    log.copy_records(copied, after=0)
    assert log.next_position() == 10
    assert [stored.index for stored in log.read(1).events] == [1, 2, 5, 9]
    assert {record.position for record in scan_all(log) if record.value is None} == {3, 4, 6, 7, 8}
    with pytest.raises(IndexConflict):
        log.copy_records(copied, after=0)
    with pytest.raises(ReplicaRefused):
        log.copy_records(origin_records([10]), after=9)


def test_migration_beside_another_writer_is_refused(
    opened: Callable[..., KafkaLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    log, other = opened(), opened()
    next_position = log.next_position

    def raced() -> int:
        found = next_position()
        other.append(observed(100))
        return found

    monkeypatch.setattr(log, "next_position", raced)
    with pytest.raises(Diverged, match="landed at 2"):
        log.copy_records([CopiedRecord(1, 1, encode_event(observed(1)))], after=0)
