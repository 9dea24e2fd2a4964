"""Selective reads of a topic by a local index, against a scan of ours."""

from collections.abc import Iterator

from belog.producers import Producer
from belog.schemas.filters import EventFilter
from belog.storage import EventLog, open_log
from benchmarks.events import STEPS, builds
from benchmarks.measure import Figure, paired, rate
from benchmarks.servers import Servers

EVENTS = 100_000
HITS = 100
"""One build's first hundred events are of twenty partitions."""
READS = 20
ROUNDS = 3


def run(servers: Servers) -> Iterator[Figure]:
    """Yield filtered reads and reads by id, once both sides know the log."""
    uri = servers.topic_uri("indexed")
    partitions = servers.sized(EVENTS, 2 * HITS * STEPS) // STEPS
    with open_log(uri) as log:
        log.initialize()
        with Producer(log, actor="bench", in_flight_max=50_000) as producer:
            for event in builds(partitions):
                producer.submit_event(event)
            producer.flush()
    path = servers.folder / "index.db"
    with open_log(uri) as plain, open_log(f"{uri}?index={path}") as indexed:
        for log in (plain, indexed):
            log.initialize()
        wanted = EventFilter(build_request_ids=(f"nightly--{partitions // 200:08d}",))
        found = indexed.read(0, wanted, HITS).events
        assert len(found) == HITS
        assert _read(plain, wanted) == found

        pair = paired(
            lambda: rate(READS, lambda: [indexed.read(0, wanted, HITS) for _ in range(READS)]),
            lambda: rate(1, lambda: _read(plain, wanted)),
            ROUNDS,
        )
        yield pair.figure(
            f"Kafka with an index, {HITS} hits in {partitions * STEPS:,} events",
            "reads/s",
            against="scan of ours",
            must=50,
            aim=500,
            checked="the same events",
        )
        event_id = found[0].event.event_id
        assert indexed.get_by_id(event_id) == plain.get_by_id(event_id)
        pair = paired(
            lambda: rate(READS, lambda: [indexed.get_by_id(event_id) for _ in range(READS)]),
            lambda: rate(1, lambda: plain.get_by_id(event_id)),
            ROUNDS,
        )
        yield pair.figure(
            "Kafka with an index, an event by its id",
            "reads/s",
            against="scan of ours",
            must=50,
            aim=500,
            checked="the same event",
        )


def _read(log: EventLog, wanted: EventFilter) -> tuple[object, ...]:
    found: list[object] = []
    cursor = 0
    while len(found) < HITS:
        page = log.read(cursor, wanted, HITS - len(found))
        found += page.events
        cursor = page.next_idx
        if not page.has_more:
            break
    return tuple(found)
