"""Long polls: how soon an append wakes those who wait, and what a waiter takes of memory."""

import asyncio
import re
import statistics
import time
from collections.abc import Iterator
from typing import Final

import msgspec

from benchmarks.http_clients import Waiters, post_request
from benchmarks.measure import Constant, Figure, Series, absolute
from benchmarks.servers import Servers
from benchmarks.serving import Service, resident_mb, served
from tests.servers import eventually

COUNTS: Final = (1, 10, 100, 1_000, 5_000)
WAKES_MAX: Final = 20
"""Appends for each count; fewer where many are woken by each."""
WAKES_MIN: Final = 3
WOKEN: Final = 4_000
"""Answers that one measurement is content with."""
WAIT_S: Final = 30
ROW_COUNT: Final = 100
"""Waiters of the row that has bounds."""
MEMORY_COUNT: Final = 1_000


def run(servers: Servers) -> Iterator[Figure | Series | Constant]:
    """Yield the table over the number of waiters, and the rows that have bounds."""
    rows: list[tuple[float, ...]] = []
    wrong = 0
    with served(f"sqlite:///{servers.folder / 'waiters.db'}") as service:
        # The first requests make what a service makes once.
        asyncio.run(_woken(service, 10, 2))
        for count in COUNTS:
            found = asyncio.run(_woken(service, servers.sized(count), _wakes(count)))
            wrong += found.wrong
            rows.append((count, found.p50_ms, found.p99_ms, found.one_ms, found.kb))
            if count == ROW_COUNT:
                yield from _figures(found)
            if count == MEMORY_COUNT:
                yield absolute(
                    f"{count:,} waiters, memory per waiter",
                    "kB",
                    [found.kb],
                    must=100,
                    aim=30,
                    better="lower",
                )
                yield Constant(
                    key="waiter_bytes",
                    unit="bytes",
                    value=found.kb * 1e3,
                    how=f"growth of a service by {count:,} long polls over HTTP",
                )
    yield Series(
        name="Waiters: one append wakes all of them, or one of them",
        axis="waiters",
        columns=(
            "all woken, p50, ms",
            "all woken, p99, ms",
            "one woken among them, p50, ms",
            "memory a waiter, kB",
        ),
        rows=tuple(rows),
        checked=f"{wrong} answers missed, doubled or wrong",
    )


class Woken(msgspec.Struct, frozen=True):
    """What one number of waiters showed."""

    latencies_ms: list[float]
    one_ms: float
    kb: float
    wrong: int

    @property
    def p50_ms(self) -> float:
        """Half of all answers."""
        return statistics.median(self.latencies_ms)

    @property
    def p99_ms(self) -> float:
        """All but a hundredth."""
        ordered = sorted(self.latencies_ms)
        return ordered[int(0.99 * (len(ordered) - 1))]


def _wakes(count: int) -> int:
    return max(min(WAKES_MAX, WOKEN // count), WAKES_MIN)


def _figures(found: Woken) -> Iterator[Figure]:
    for name, value, must, aim in (
        ("p50", found.p50_ms, 10.0, 4.0),
        ("p99", found.p99_ms, 50.0, 20.0),
    ):
        yield absolute(
            f"append → long-poll answer, {ROW_COUNT} waiters, {name}",
            "ms",
            [value],
            must=must,
            aim=aim,
            better="lower",
            checked=f"{found.wrong} of {len(found.latencies_ms)} answers missed or wrong",
        )


async def _woken(service: Service, count: int, wakes: int) -> Woken:
    waiters, writer = Waiters(service.port), Waiters(service.port)
    await writer.connect(1)
    before_mb = resident_mb(service.process.pid)
    await waiters.connect(count)
    latencies: list[float] = []
    ones: list[float] = []
    wrong, grown_mb = 0, 0.0
    for wake in range(wakes):
        since = await asyncio.to_thread(_next_idx, service)
        tasks = waiters.ask(lambda _n, since=since: f"/events?since={since}&wait_s={WAIT_S}")  # type: ignore[misc]
        await asyncio.to_thread(_all_wait, service, count)
        grown_mb = max(grown_mb, resident_mb(service.process.pid) - before_mb)
        appended, answered = _append(writer, f"all-{count}-{wake}")
        for at, body in await asyncio.gather(*tasks):
            latencies.append((at - appended) * 1e3)
            wrong += _indices(body) != [since]
        await answered
    for wake in range(min(wakes, WAKES_MIN)):
        since = await asyncio.to_thread(_next_idx, service)
        tag = f"one-{count}-{wake}"
        tasks = waiters.ask(
            lambda n, since=since, tag=tag: (  # type: ignore[misc]
                f"/events?since={since}&wait_s={WAIT_S}&partition_ref={tag}-{n}"
            )
        )
        await asyncio.to_thread(_all_wait, service, count)
        chosen = count // 2
        appended, answered = _append(writer, f"{tag}-{chosen}")
        at, body = await tasks[chosen]
        ones.append((at - appended) * 1e3)
        wrong += _indices(body) != [since]
        await answered
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await waiters.close()
        await asyncio.to_thread(_all_wait, service, 0)
        await waiters.connect(count)
    await waiters.close()
    await writer.close()
    await asyncio.to_thread(_all_wait, service, 0)
    return Woken(latencies, statistics.median(ones), grown_mb * 1e3 / count, wrong)


def _append(writer: Waiters, ref: str) -> tuple[float, "asyncio.Task[tuple[float, bytes]]"]:
    """Append one event over an open connection.

    Returns:
        When the request was sent, which is what a waiter waits from; and who takes its answer.
    """
    event = {"event_type": "v1.partition.observed", "subject_id": ref, "body": {"source": "bench"}}
    request = post_request(msgspec.json.encode(event))
    return time.perf_counter(), writer.send(request)


def _next_idx(service: Service) -> int:
    return int(_gauge(service, "belog_feed_next_index"))


def _all_wait(service: Service, count: int) -> None:
    eventually(lambda: int(_gauge(service, "belog_feed_waiters")) == count, f"{count} wait")


def _gauge(service: Service, name: str) -> float:
    found = re.search(
        rf"^{name}(?:{{[^}}]*}})? ([0-9.e+]+)$", service.get("/metrics").decode(), re.MULTILINE
    )
    assert found is not None, name
    return float(found[1])


def _indices(body: bytes) -> list[int]:
    return [int(event["index"]) for event in msgspec.json.decode(body)["events"]]
