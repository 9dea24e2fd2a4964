"""Where the time of the hottest paths goes: validated append, fold, and an append over HTTP.

Taken with cProfile, which makes calls dearer than they are: shares say where to look, and not how
long things take.
"""

import asyncio
import cProfile
import pstats
import sys
import threading
from asyncio.subprocess import PIPE
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from belog.processors.table_fold import TableFold
from belog.producers import Producer
from belog.schemas.fold import Fold
from belog.service.access import Access
from belog.service.http_api import HttpSettings, make_app
from belog.service.instance import Instance, InstanceSettings
from belog.service.server import HttpListener, listen, serve
from belog.storage import open_log
from belog.storage.memory import MemoryLog
from benchmarks.events import builds, records
from benchmarks.http_load import Load, Outcome
from benchmarks.measure import timed
from benchmarks.report import Profile
from benchmarks.servers import Servers

__all__ = ["profiles"]

PARTITIONS: Final = 4_000
HTTP_CLIENTS: Final = 20
HTTP_EACH: Final = 100
SHOWN: Final = 12
"""Functions of a table: those below have a hundredth or two."""
WAITS: Final = (
    "acquire",
    "'poll' of",
    "'get' of '_queue.SimpleQueue'",
    # A loop of C waits in whoever runs it; a start waits for the broker.
    "runners.run",
    "list_topics",
    # The clients of the profile of HTTP.
    "waitpid",
    "fork_exec",
    "threading.wait",
)


def profiles(servers: Servers) -> tuple[Profile, ...]:
    """Profile each path."""
    partitions = servers.sized(PARTITIONS)
    return (
        _fold(partitions),
        _tables(partitions),
        _append(partitions),
        _pipelined(servers, partitions),
        _http(servers),
    )


def _profiled(name: str, events: int, work: Callable[[], object]) -> Profile:
    profile = cProfile.Profile()
    seconds = timed(lambda: profile.runcall(work))
    return _shares(name, events, seconds, [profile])


def _shares(name: str, events: int, seconds: float, taken: Iterable["cProfile.Profile"]) -> Profile:
    first, *others = taken
    stats: Any = pstats.Stats(first)
    for other in others:
        stats.add(other)
    own = {_name(key): 0.0 for key in stats.stats}
    for key, (_, _, own_s, _, _) in stats.stats.items():
        own[_name(key)] += own_s
    # Waiting is no work.
    own = {key: own_s for key, own_s in own.items() if not _waits(key)}
    whole = sum(own.values())
    largest = sorted(own.items(), key=lambda item: -item[1])[:SHOWN]
    shares = tuple((key, own_s / whole) for key, own_s in largest)
    return Profile(name=name, events=events, us_per_event=seconds * 1e6 / events, shares=shares)


def _name(key: tuple[str, int, str]) -> str:
    """Return a function's name without the machine's paths."""
    path, _, function = key
    if path == "~":
        return function.strip("<>").removeprefix("built-in method ")
    parts = Path(path).with_suffix("").parts
    if "belog" in parts:
        parts = parts[len(parts) - 1 - parts[::-1].index("belog") :]
        parts = parts[1:]
    return f"{'.'.join(parts[-2:])}.{function}"


def _waits(name: str) -> bool:
    return any(word in name for word in WAITS)


def _fold(partitions: int) -> Profile:
    log = records(partitions)

    def work() -> None:
        fold = Fold()
        for record in log:
            fold.apply(record)

    return _profiled("Fold: decode, verdict, apply", len(log), work)


def _tables(partitions: int) -> Profile:
    log = records(partitions)
    return _profiled(
        "Tables: fold, and rows in the process", len(log), lambda: TableFold().apply(log)
    )


def _append(partitions: int) -> Profile:
    events = list(builds(partitions))
    with MemoryLog() as log:
        log.initialize()
        with Producer(log, actor="bench") as producer:
            return _profiled(
                "Validated append, in batches of 100, to a log in memory",
                len(events),
                lambda: [
                    producer.append_batch(events[n : n + 100]) for n in range(0, len(events), 100)
                ],
            )


def _pipelined(servers: Servers, partitions: int) -> Profile:
    events = list(builds(partitions))
    with open_log(servers.topic_uri("profile")) as log, _in_threads() as taken:
        log.initialize()
        with Producer(log, actor="bench", in_flight_max=50_000) as producer:

            def work() -> None:
                for event in events:
                    producer.submit_event(event)
                producer.flush()

            own = cProfile.Profile()
            seconds = timed(lambda: own.runcall(work))
    name = "Validated append to Kafka, pipelined, with the client's threads"
    return _shares(name, len(events), seconds, [own, *taken])


@contextmanager
def _in_threads() -> Generator[list["cProfile.Profile"]]:
    """Profile the threads that begin meanwhile; each has a profile of its own."""
    taken: list[cProfile.Profile] = []

    def begin(*_: object) -> None:
        profile = cProfile.Profile()
        taken.append(profile)
        profile.enable()

    threading.setprofile(begin)
    try:
        yield taken
    finally:
        threading.setprofile(None)


def _http(servers: Servers) -> Profile:
    """Profile the loop and the threads of a service while another thread's clients append."""
    each = servers.sized(HTTP_EACH)
    uri = f"sqlite:///{servers.folder / 'profile.db'}"
    listening = listen(HttpListener(port=0))
    port: int = listening.getsockname()[1]
    profile = cProfile.Profile()
    took: list[float] = []

    async def main() -> None:
        stop = asyncio.Event()
        async with Instance(InstanceSettings(log_uri=uri)) as instance:
            app = make_app(instance, Access.open(), HttpSettings())
            ready = asyncio.Event()
            server = asyncio.create_task(
                serve(instance, app, listening, stop=stop, on_ready=ready.set)
            )
            await ready.wait()
            clients = list(_clients(each))
            profile.enable()
            took.append(await _driven(Load(port, clients)))
            profile.disable()
            stop.set()
            await server

    with _in_threads() as taken:
        asyncio.run(main())
    return _shares(
        f"Append over HTTP, {HTTP_CLIENTS} clients, SQLite: the loop and its threads",
        HTTP_CLIENTS * each,
        took[0],
        [profile, *taken],
    )


async def _driven(load: Load) -> float:
    """Let clients of another process append; return how long it took, seconds."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.http_load", stdin=PIPE, stdout=PIPE
    )
    said, _ = await process.communicate(msgspec.msgpack.encode(load))
    outcome = msgspec.json.decode(said, type=Outcome)
    assert outcome.bad == 0, f"{outcome.bad} answers were no 200"
    return outcome.seconds


def _clients(each: int) -> Iterator[list[bytes]]:
    for client in range(HTTP_CLIENTS):
        yield [
            msgspec.json.encode(
                {
                    "event_type": "v1.partition.observed",
                    "subject_id": f"profile-{client}-{n}",
                    "body": {"source": "bench"},
                }
            )
            for n in range(each)
        ]
