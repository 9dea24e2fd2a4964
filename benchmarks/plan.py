"""Which benchmarks there are, and how long each may take."""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

__all__ = ["BENCHES", "LARGE", "SUITE_S_MAX", "Bench"]

SUITE_S_MAX: Final = 1_200
"""The whole suite on two cores, seconds: what one waits for beside a cup of coffee. The budgets
leave what the profiles and the start of servers take."""


class Bench(Struct, frozen=True):
    """One module; it has `run(servers)`, which yields figures, series and constants."""

    module: str
    budget_s: int
    """What it may take on two quiet cores, seconds. A run says which took longer."""


BENCHES: Final[Mapping[str, Bench]] = {
    "fold": Bench("benchmarks.bench_fold", 50),
    "sqlite": Bench("benchmarks.bench_sqlite", 30),
    "rivals": Bench("benchmarks.bench_rivals_sqlite", 50),
    "file": Bench("benchmarks.bench_file", 50),
    "kafka": Bench("benchmarks.bench_kafka", 55),
    "tables": Bench("benchmarks.bench_tables", 55),
    "sink": Bench("benchmarks.bench_sink", 30),
    "migrate": Bench("benchmarks.bench_migrate", 30),
    "index": Bench("benchmarks.bench_index", 25),
    "http": Bench("benchmarks.bench_http", 90),
    "grpc": Bench("benchmarks.bench_grpc", 60),
    "request": Bench("benchmarks.bench_request", 45),
    "writers": Bench("benchmarks.bench_writers", 50),
    "waiters": Bench("benchmarks.bench_waiters", 45),
    "sizes": Bench("benchmarks.bench_sizes", 15),
    "postgres": Bench("benchmarks.bench_postgres", 50),
    # From here on they share one log of a million events, which the first of them makes.
    "snapshot": Bench("benchmarks.bench_snapshot", 130),
    # Makes the index of filters, which the queries after it use.
    "selective": Bench("benchmarks.bench_selective", 175),
    "query": Bench("benchmarks.bench_query", 40),
    "start": Bench("benchmarks.bench_start", 25),
    "scale": Bench("benchmarks.bench_scale", 85),
}
"""By name, in the order of running."""

LARGE: Final[Mapping[str, Bench]] = {"large": Bench("benchmarks.bench_large", 1_800)}
"""What does not fit into the suite's time: run by name, or by `make bench-large`."""
