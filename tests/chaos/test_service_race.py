"""What a service promises to many clients at once: one builds, and no follower misses anything."""

import asyncio
import json
import os
import random
import re
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import quote

import grpc
import httpx
import pytest

from belog.schemas.filters import glob_regex
from belog.storage import open_log
from belog.storage.kafka_topic import create_topic
from belog.storage.opening import open_existing
from belog.v1 import catalog_pb2, catalog_pb2_grpc
from tests.producing import Judgement
from tests.servers import Broker, free_port
from tests.service_process import ServiceProcess

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(240)]

CLIENTS: Final = 200
PARTITIONS: Final = 50
ASKED: Final = int(os.environ.get("BELOG_TEST_ASKED", "6"))
"""Of these each client asks for so many; before a release, for all: BELOG_TEST_ASKED=50."""
WRITERS: Final = 4
EVENTS: Final = 150
"""Of each writer."""
CALL_S: Final = 60.0
BACKENDS = ["sqlite", pytest.param("kafka", marks=pytest.mark.integration)]

Ask = Callable[[str, str], Awaitable[str]]
"""Asks for a partition as a client; returns `building`, `delegated` or `available`."""


@pytest.fixture(params=BACKENDS)
def log_uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'log.db'}"
    broker: Broker = request.getfixturevalue("broker")
    uri = f"{broker.uri}/{request.getfixturevalue('topic_name')}"
    create_topic(uri)
    return uri


def judged(log_uri: str) -> Judgement:
    with open_log(log_uri) as log:
        open_existing(log)
        return Judgement(log)


# --- one builds


def test_of_200_clients_that_ask_for_50_partitions_one_builds_each(
    log_uri: str, tmp_path: Path, seed: int
) -> None:
    grpc_port = free_port()
    flags: dict[str, Any] = {"server.grpc_port": grpc_port}
    with ServiceProcess(log_uri, tmp_path, **flags) as service:
        answers = asyncio.run(race(service.url, f"127.0.0.1:{grpc_port}", seed))
    counts = {ref: Counter(found) for ref, found in answers.items()}
    assert len(counts) == PARTITIONS
    for ref, count in counts.items():
        assert count["building"] == 1, f"{ref}: {count}"
    assert sum(count.total() for count in counts.values()) == CLIENTS * ASKED
    judgement = judged(log_uri)
    begun = Counter(e.subject_id for _, e in judgement.events if "requested" in e.event_type)
    assert begun == dict.fromkeys(counts, 1)
    received = sum(e.event_type == "v1.build.received" for _, e in judgement.events)
    assert received == PARTITIONS


async def race(url: str, grpc_address: str, seed: int) -> dict[str, list[str]]:
    refs = [f"data://race/{n}/tägliche zahlen?#%2F" for n in range(PARTITIONS)]
    answers: dict[str, list[str]] = defaultdict(list)
    limits = httpx.Limits(max_connections=CLIENTS // 2)
    async with (
        httpx.AsyncClient(base_url=url, timeout=CALL_S, limits=limits) as http,
        grpc.aio.insecure_channel(grpc_address) as channel,
    ):
        # Generated code has no annotations.
        stub = cast("Any", catalog_pb2_grpc).EnhancedCatalogStub(channel)

        async def by_http(ref: str, client: str) -> str:
            path = f"/partitions/{quote(ref, safe='')}/request"
            done = await http.post(path, json={"client_id": client})
            assert done.status_code == 200, done.text
            return next(k for k in ("building", "delegated", "available") if k in done.json())

        async def by_grpc(ref: str, client: str) -> str:
            request = catalog_pb2.RequestPartitionRequest(
                partition_ref=ref,
                client_id=client,
                options=catalog_pb2.RequestOptions(allow_delegation=True),
            )
            done = await stub.RequestPartition(request, timeout=CALL_S)
            return str(done.WhichOneof("result"))

        async def client(n: int) -> None:
            ask: Ask = by_http if n % 2 else by_grpc
            # Those that others ask for at the same moment, each client in its own order.
            first = n // 8 * ASKED
            mine = [refs[(first + k) % PARTITIONS] for k in range(ASKED)]
            random.Random(f"{seed}-{n}").shuffle(mine)
            for ref in mine:
                answers[ref].append(await ask(ref, f"client-{n}"))

        await asyncio.gather(*map(client, range(CLIENTS)))
    return answers


# --- nothing is missed


def test_followers_that_are_cut_off_at_random_see_every_match_once_in_order(
    log_uri: str, tmp_path: Path, seed: int
) -> None:
    pattern = "data://x/*[02468]"
    with ServiceProcess(log_uri, tmp_path) as service:
        polled, streamed = asyncio.run(follow_and_write(service.url, pattern, seed))
    matches = compiled(pattern)
    expected = [i for i, e in judged(log_uri).events if matches(e.subject_id)]
    assert len(expected) > WRITERS * EVENTS // 4
    assert polled == expected
    assert streamed == expected


def compiled(pattern: str) -> Callable[[str], object]:
    return re.compile(glob_regex(pattern), re.DOTALL).fullmatch


async def follow_and_write(url: str, pattern: str, seed: int) -> tuple[list[int], list[int]]:
    rng = random.Random(seed)
    end: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    async with httpx.AsyncClient(base_url=url, timeout=CALL_S) as http:
        following = [
            asyncio.create_task(follow(http, pattern, random.Random(rng.random()), end))
            for follow in (by_long_poll, by_stream)
        ]
        await asyncio.gather(*(write(http, n) for n in range(WRITERS)))
        end.set_result(int((await http.get("/status")).json()["next_idx"]))
        polled, streamed = await asyncio.gather(*following)
    return polled, streamed


async def write(http: httpx.AsyncClient, writer: int) -> None:
    for n in range(EVENTS):
        event = {
            "event_type": "v1.partition.requested",
            "subject_id": f"data://x/{writer * EVENTS + n}",
            "body": {"build_request_id": f"build-{writer}"},
        }
        done = await http.post("/events", json=event)
        assert done.status_code == 200, done.text


async def by_long_poll(
    http: httpx.AsyncClient, pattern: str, rng: random.Random, end: asyncio.Future[int]
) -> list[int]:
    seen: list[int] = []
    cursor = 0
    while not (end.done() and cursor >= end.result()):
        query = {"since": cursor, "limit": rng.randint(1, 40), "wait_s": 1}
        asking = http.get("/events", params={**query, "partition_pattern": pattern})
        try:
            page = await asyncio.wait_for(asking, rng.choice((0.003, 0.02, 5)))
        except TimeoutError:
            continue
        found = page.json()
        seen += [int(event["index"]) for event in found.get("events", ())]
        cursor = int(found["next_idx"])
    return seen


async def by_stream(
    http: httpx.AsyncClient, pattern: str, rng: random.Random, end: asyncio.Future[int]
) -> list[int]:
    seen: list[int] = []
    cursor = "0"
    while not (end.done() and int(cursor) >= end.result()):
        messages = rng.randint(0, 30)
        stream = http.stream(
            "GET",
            "/events/stream",
            params={"partition_pattern": pattern},
            headers={"Last-Event-ID": cursor},
        )
        async with stream as answer:
            assert answer.status_code == 200
            async for identity, data in server_sent(answer, cursor):
                seen += indices(data)
                cursor = identity
                messages -= 1
                if messages < 0 or (end.done() and int(cursor) >= end.result()):
                    break
    return seen


def indices(data: str) -> Sequence[int]:
    if not data:
        return []
    found = json.loads(data)
    return [int(e["index"]) for e in found.get("events", [found] if "index" in found else [])]


async def server_sent(answer: httpx.Response, identity: str) -> AsyncIterator[tuple[str, str]]:
    """The blocks of a stream (WHATWG, server-sent events): id and data; a heartbeat has none."""
    data = ""
    async for line in answer.aiter_lines():
        if not line:
            yield identity, data
            data = ""
        elif line.startswith("id:"):
            identity = line[3:].strip()
        elif line.startswith("data:"):
            data += line[5:].strip()
