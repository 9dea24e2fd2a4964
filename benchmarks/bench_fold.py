"""Decoding, judging and folding on one core, and the memory it takes."""

import multiprocessing
from collections.abc import Iterator

from belog.schemas.envelope import encode_event
from belog.schemas.fold import Fold, Record
from benchmarks.events import START_US, builds, records
from benchmarks.measure import Constant, Figure, absolute, rate
from benchmarks.servers import Servers
from benchmarks.serving import resident_mb

PARTITIONS = 20_000
MEMORY_PARTITIONS = 100_000
MEMORY_PASSES = 2
"""A partition and its job run are a subject each, and have five events a pass: 1M, 200k."""


def run(servers: Servers) -> Iterator[Figure | Constant]:
    """Yield the rate of a fold and its memory."""
    log = records(servers.sized(PARTITIONS))

    def fold() -> None:
        state = Fold()
        for record in log:
            state.apply(record)

    fold()
    rates = [rate(len(log), fold) for _ in range(5)]
    yield absolute("decode + verdict + fold, one core", "events/s", rates, must=80e3, aim=150e3)
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        grown_mb, subjects = pool.apply(_memory, (servers.sized(MEMORY_PARTITIONS),))
    yield absolute(
        f"memory of a fold over 1M events, {subjects:,} subjects",
        "MB",
        [grown_mb],
        must=600,
        aim=250,
        better="lower",
    )
    yield Constant(
        key="fold_bytes_per_subject",
        unit="bytes",
        value=grown_mb * 1e6 / subjects,
        how=f"growth of a process that folds, over {subjects:,} subjects",
    )


def _memory(partitions: int) -> tuple[float, int]:
    """Fold a million events in a fresh process; return what it grew by, MB, and the subjects."""
    state = Fold()
    state.apply(records(0)[0])
    before = resident_mb()
    position = 1
    for _ in range(MEMORY_PASSES):
        for event in builds(partitions):
            state.apply(Record(position, START_US + position, encode_event(event)))
            position += 1
    return resident_mb() - before, sum(len(table) for table in state.subjects.values())
