"""From the start of `belog serve` to its first answer."""

import time
from collections.abc import Iterator
from itertools import count
from typing import Final

import msgspec

from benchmarks.measure import Figure, absolute
from benchmarks.million import REF
from benchmarks.servers import Servers
from benchmarks.serving import Service

STARTS: Final = 3
WARM_UPS: Final = 1
"""The first start reads the program from the disk."""


def run(servers: Servers) -> Iterator[Figure]:
    """Yield a start with nothing, and one after a kill with a million events and a snapshot."""
    numbers = count()
    taken = [
        _first_answer(f"sqlite:///{servers.folder / f'new-{next(numbers)}.db'}")
        for _ in range(WARM_UPS + STARTS)
    ]
    yield absolute(
        "belog serve from nothing to its first answer",
        "s",
        taken[WARM_UPS:],
        must=2.0,
        aim=1.0,
        better="lower",
        checked="answered 200",
    )
    million = servers.million
    flags = ("--snapshots", str(million.snapshots))
    path = f"/partitions/{REF.replace('/', '%2F').replace(':', '%3A')}0"
    taken = [_first_answer(million.uri, *flags, path=path) for _ in range(WARM_UPS + STARTS)]
    yield absolute(
        f"killed with -9 and started again, {million.count:,} events, a snapshot: first answer",
        "s",
        taken[WARM_UPS:],
        must=3.0,
        aim=2.0,
        better="lower",
        checked="a partition's row is right",
    )


def _first_answer(uri: str, *flags: str, path: str | None = None) -> float:
    """Start a service, then kill it; return how long its first answer took, seconds."""
    started = time.perf_counter()
    service = Service.spawn(uri, *flags)
    try:
        service.answer(path or "/healthz")
        took_s = time.perf_counter() - started
        if path is not None:
            answer = msgspec.json.decode(service.get(path))
            assert answer["reason"] == "its source changed", answer
        return took_s
    finally:
        service.kill()
