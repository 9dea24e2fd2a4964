"""Writers at once, 1 to 32 processes, each with a validating producer, on three backends."""

import multiprocessing
import time
from collections.abc import Iterator
from itertools import count
from multiprocessing.synchronize import Barrier
from typing import Final

from belog.producers import Producer
from belog.storage import open_log
from benchmarks.counting import Tally, ids_in, tally, total
from benchmarks.events import STEPS, builds
from benchmarks.measure import Series
from benchmarks.servers import Servers

WRITERS: Final = (1, 4, 16, 32)
EVENTS: Final = 3_200
"""Of all writers together, one append each; a multiple of `STEPS` for each writer."""
START_S: Final = 120.0
"""How long writers may take until all of them are ready."""


def run(servers: Servers) -> Iterator[Series]:
    """Yield the rates, by number of writers."""
    numbers = count()
    # Writers that inherit the imports start in a tenth of the time.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["benchmarks.bench_writers", "belog.storage.sqlite"])
    tallies: list[Tally] = []
    rows: list[tuple[float, ...]] = []
    for writers in WRITERS:
        number = next(numbers)
        uris = (
            f"sqlite:///{servers.folder / f'writers-{number}.db'}",
            f"{servers.postgres.uri}?schema=writers_{number}",
            servers.topic_uri("writers"),
        )
        each = max(servers.sized(EVENTS) // writers // STEPS, 1) * STEPS
        rates = [_rate(context, uri, writers, each, tallies) for uri in uris]
        rows.append((writers, *rates))
    yield Series(
        name="Writers: validated appends, one event each, acknowledged",
        axis="writer processes",
        columns=("SQLite, events/s", "PostgreSQL, events/s", "Kafka, events/s"),
        rows=tuple(rows),
        checked=str(total(tallies)),
    )


def _rate(
    context: "multiprocessing.context.ForkServerContext",
    uri: str,
    writers: int,
    each: int,
    tallies: list[Tally],
) -> float:
    """Return events a second, from the first append to the last."""
    with open_log(uri) as log:
        log.initialize()
        barrier = context.Barrier(writers)
        found = context.SimpleQueue()
        processes = [
            context.Process(target=_write, args=(uri, n, each, barrier, found))
            for n in range(writers)
        ]
        for process in processes:
            process.start()
        results = [found.get() for _ in processes]
        for process in processes:
            process.join(START_S)
            assert process.exitcode == 0, f"a writer ended with {process.exitcode}"
        tallies.append(tally([ids for _, _, ids in results], ids_in(log)))
    started, ended = min(r[0] for r in results), max(r[1] for r in results)
    return float(writers * each / (ended - started))


def _write(
    uri: str,
    writer: int,
    each: int,
    barrier: Barrier,
    found: "multiprocessing.queues.SimpleQueue[tuple[float, float, list[bytes]]]",
) -> None:
    events = list(builds(each // STEPS, tag=f"w{writer}-"))
    with open_log(uri) as log:
        log.initialize()
        with Producer(log, actor="bench") as producer:
            producer.refresh()
            barrier.wait(START_S)
            # One clock for all processes of a machine.
            started = time.monotonic()
            for event in events:
                producer.append_event(event)
            ended = time.monotonic()
    found.put((started, ended, [event.event_id for event in events]))
