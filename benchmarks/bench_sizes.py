"""What an event and a row take: the constants that the page on capacity starts from."""

import uuid
from collections.abc import Iterator
from itertools import islice
from typing import Final

from belog.processors.redis_follower import follower_from_uri
from belog.producers import Producer
from belog.schemas.envelope import decode_event, encode_event
from belog.storage import open_log
from belog.storage.interface import EventLog, LogIdentity
from benchmarks.counting import tally_log
from benchmarks.events import STEPS, builds
from benchmarks.measure import Constant
from benchmarks.million import received
from benchmarks.servers import Servers
from tests.servers.runner import LocalRunner

EVENTS: Final = 20_000
SINGLES: Final = 1_000
ROW_KINDS: Final = ("partition", "build", "job_run", "task")
SAMPLED: Final = 200
"""Rows of a kind whose size is asked for."""


def run(servers: Servers) -> Iterator[Constant]:
    """Yield bytes of events in their forms, and of rows in Redis."""
    count = servers.sized(EVENTS, STEPS)
    events = [*received(count // STEPS), *builds(count // STEPS)]
    count = len(events)
    yield Constant(
        key="event_bytes",
        unit="bytes",
        value=sum(len(encode_event(event)) for event in events) / count,
        how="the envelope as it is stored, over the events of whole builds",
    )
    yield Constant(
        key="payload_bytes",
        unit="bytes",
        value=sum(len(decode_event(encode_event(event)).payload) for event in events) / count,
        how="the payload in it",
    )
    uri = servers.topic_uri("sizes")
    with open_log(uri) as log:
        log.initialize()
        with Producer(log, actor="bench", in_flight_max=50_000) as producer:
            for event in events:
                producer.submit_event(event)
            producer.flush()
        found = tally_log(log, [events])
        yield Constant(
            key="kafka_bytes_per_event",
            unit="bytes",
            value=_topic_bytes(servers, uri) / count,
            how=f"disk of one broker, {count:,} events in a pipeline; {found}",
        )
        yield from _rows(servers, log, log.initialize())
    single_uri = servers.topic_uri("sizes-single")
    singles = list(builds(servers.sized(SINGLES, STEPS) // STEPS))
    with open_log(single_uri) as log:
        log.initialize()
        with Producer(log, actor="bench") as producer:
            for event in singles:
                producer.append_event(event)
        found = tally_log(log, [singles])
    yield Constant(
        key="kafka_bytes_per_single_event",
        unit="bytes",
        value=_topic_bytes(servers, single_uri) / len(singles),
        how=f"disk of one broker, each event in a batch of its own; {found}",
    )


def _topic_bytes(servers: Servers, uri: str) -> int:
    """Return what a topic's one partition takes on the broker's disk."""
    runner = servers.broker.runner
    assert isinstance(runner, LocalRunner), "sizes on disk are read from a broker of this machine"
    folder = runner.dir / "log" / f"{uri.rpartition('/')[2]}-0"
    return sum(file.stat().st_size for file in folder.glob("*.log"))


def _rows(servers: Servers, log: EventLog, identity: LogIdentity) -> Iterator[Constant]:
    """Yield bytes of a row of each kind, without and with its share of the indexes."""
    prefix = f"sizes-{uuid.uuid4().hex[:8]}"
    with servers.redis.connect() as redis:
        before = redis.info("memory")["used_memory"]
        follower = follower_from_uri(log, f"{servers.redis.uri}?prefix={prefix}", identity)
        try:
            follower.start()
            follower.catch_up()
        finally:
            follower.close()
        grown = redis.info("memory")["used_memory"] - before
        hashes = rows = 0.0
        sizes: list[Constant] = []
        for kind in ROW_KINDS:
            pattern = f"{{{prefix}}}:*:{kind}:*"
            found = [
                k for k in redis.scan_iter(pattern, 10_000) if k.split(b":")[2] == kind.encode()
            ]
            if not found:
                continue
            sample = list(islice(found, SAMPLED))
            mean = sum(redis.memory_usage(key) for key in sample) / len(sample)
            hashes += mean * len(found)
            rows += len(found)
            sizes.append(
                Constant(
                    key=f"redis_bytes_per_{kind}",
                    unit="bytes",
                    value=mean,
                    how=f"the hash of a row, mean of {len(sample)}",
                )
            )
        yield from sizes
        yield Constant(
            key="redis_index_bytes_per_row",
            unit="bytes",
            value=(grown - hashes) / rows,
            how="all else that Redis grew by, over the rows: indexes, key names' table",
        )
        servers.redis.flush()
