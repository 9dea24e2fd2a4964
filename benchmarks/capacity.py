"""What one Kafka partition carries, and where a log must be split. Arithmetic only.

`python -m benchmarks.capacity --events-per-day 2000000 --partitions 500000` prints the table for a
platform; the constants are those of docs/benchmarks.json.
"""

import argparse
from collections.abc import Mapping
from math import ceil
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from benchmarks.report import Report, number

__all__ = [
    "EXAMPLES",
    "Carried",
    "Measured",
    "Platform",
    "capacity_blocks",
    "capacity_of",
    "limits_table",
    "measured_in",
    "table",
]

REPORT: Final = Path(__file__).parents[1] / "docs/benchmarks.json"

DAY_S: Final = 86_400
HEADROOM: Final = 0.5
"""Share of a measured rate that is planned with: the other half is for catching up after a stop,
and for machines that are not quiet."""
PEAK_FACTOR: Final = 10.0
"""The busiest minute over the mean of a day: nightly runs put most events into an hour or two."""
REPLICAS: Final = 3
"""Copies of a topic, as brokers that may lose one machine hold it."""
REDIS_FRAGMENTATION: Final = 1.4
"""Memory that Redis holds over what its keys take, and room for a generation that is loaded."""
FOLD_MB_MAX: Final = 8_000
"""What one process may hold of a fold, MB: every producer, worker and embedded service has one."""
REPLAY_S_MAX: Final = 3_600
"""A replay of the whole log, without a snapshot, may take an hour."""


class Measured(Struct, frozen=True, kw_only=True):
    """The constants, each measured by the suite."""

    append_events_s: float
    """Validated appends of one producer to Kafka, pipelined."""
    worker_events_s: float
    """What the worker writes into Redis while it follows."""
    rebuild_events_s: float
    """What a rebuild writes into Redis."""
    fold_events_s: float
    """Decode, verdict and fold on one core."""
    http_events_s: float
    """Single events over HTTP."""
    http_batch_events_s: float
    """Events over HTTP in batches of 100."""
    kafka_bytes_per_event: float
    kafka_bytes_per_single_event: float
    redis_bytes_per_partition: float
    redis_bytes_per_build: float
    redis_bytes_per_job_run: float
    redis_bytes_per_task: float
    redis_index_bytes_per_row: float
    fold_bytes_per_subject: float


_FIGURES: Final[Mapping[str, str]] = {
    "append_events_s": "Kafka, pipelined validated append",
    "rebuild_events_s": "Redis tables rebuilt from Kafka",
    "fold_events_s": "decode + verdict + fold, one core",
    "http_events_s": "HTTP append, 100 clients, single events, Kafka",
    "http_batch_events_s": "HTTP append, 100 clients, batches of 100, Kafka",
}
"""Field → the row of the suite whose own rate it is; the others are constants by their keys."""


class Platform(Struct, frozen=True, kw_only=True):
    """What a platform does."""

    name: str = "yours"
    events_per_day: int
    partitions: int
    """Partitions of data that are kept."""
    age_days: int = 365
    """Days that the log has been written: subjects never leave it."""
    kept_days: int = 90
    """Days until a vacuum: of what is older, each subject's newest event stays in the log."""
    events_per_build: int = 500
    events_per_job_run: int = 5


EXAMPLES: Final = (
    Platform(name="small: one team", events_per_day=5_000, partitions=10_000),
    Platform(name="middle: a department", events_per_day=200_000, partitions=200_000),
    Platform(name="large: a company", events_per_day=10_000_000, partitions=5_000_000),
)


class Carried(Struct, frozen=True, kw_only=True):
    """What that asks of one log."""

    mean_events_s: float
    peak_events_s: float
    log_events: int
    """Events in the log after a vacuum."""
    broker_gb: float
    """Disk of all replicas together."""
    redis_gb: float
    fold_mb: float
    """Memory of each process that folds the log."""
    replay_s: float
    """A rebuild of the tables without a snapshot."""
    instances: int
    """Instances that it should be split into, 1 for none."""
    because: str
    """What asks for the most instances."""


def measured_in(report: Report) -> Measured:
    """Return the constants of a report.

    Raises:
        KeyError: One was not measured; names it.
    """
    figures = {figure.name: figure.ours for r in report.results.values() for figure in r.figures}
    constants = {c.key: c.value for r in report.results.values() for c in r.constants}
    values = {
        field: figures[_FIGURES[field]] if field in _FIGURES else constants[field]
        for field in Measured.__struct_fields__
    }
    return Measured(**values)


def capacity_of(platform: Platform, measured: Measured) -> Carried:
    """Return what a platform asks of one log, and into how many it should be split.

    A limit is reached where the busiest minute needs more than `HEADROOM` of what the slowest part
    of the path does, where a fold no longer fits into `FOLD_MB_MAX`, or where a replay takes longer
    than `REPLAY_S_MAX`. Each is shared out evenly by splitting.
    """
    peak = platform.events_per_day / DAY_S * PEAK_FACTOR
    written = platform.events_per_day * platform.age_days
    builds = ceil(written / platform.events_per_build)
    job_runs = ceil(written / platform.events_per_job_run)
    subjects = platform.partitions + builds + job_runs
    kept = platform.events_per_day * min(platform.kept_days, platform.age_days)
    log_events = min(kept + subjects, written)
    # A task is a job's work in one build; as many as job runs where none is tried again.
    tasks = job_runs
    redis_bytes = (
        platform.partitions * measured.redis_bytes_per_partition
        + builds * measured.redis_bytes_per_build
        + job_runs * measured.redis_bytes_per_job_run
        + tasks * measured.redis_bytes_per_task
        + (platform.partitions + builds + job_runs + tasks) * measured.redis_index_bytes_per_row
    )
    fold_mb = subjects * measured.fold_bytes_per_subject / 1e6
    replay_s = log_events / measured.rebuild_events_s
    needed = {
        "appends": peak / (measured.append_events_s * HEADROOM),
        "the worker": peak / (measured.worker_events_s * HEADROOM),
        "memory of the fold": fold_mb / FOLD_MB_MAX,
        "replay without a snapshot": replay_s / REPLAY_S_MAX,
    }
    because = max(needed, key=lambda name: needed[name])
    instances = max(ceil(needed[because]), 1)
    return Carried(
        mean_events_s=platform.events_per_day / DAY_S,
        peak_events_s=peak,
        log_events=log_events,
        broker_gb=log_events * measured.kafka_bytes_per_single_event * REPLICAS / 1e9,
        redis_gb=redis_bytes * REDIS_FRAGMENTATION / 1e9,
        fold_mb=fold_mb,
        replay_s=replay_s,
        instances=instances,
        because=because if instances > 1 else "–",
    )


def table(platforms: "tuple[Platform, ...]", measured: Measured) -> str:
    """Return what platforms ask of a log, as a Markdown table."""
    rows = [
        (
            "| platform | events a day | partitions | age / kept | mean / busiest minute | log "
            "| broker disk, 3 copies | Redis | fold, each process | replay | instances "
            "| because of |"
        ),
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for platform in platforms:
        c = capacity_of(platform, measured)
        rows.append(
            f"| {platform.name} | {platform.events_per_day:,} | {platform.partitions:,} "
            f"| {platform.age_days} / {platform.kept_days} days "
            f"| {number(c.mean_events_s)} / {number(c.peak_events_s)} events/s "
            f"| {number(c.log_events / 1e6)} million | {number(c.broker_gb)} GB "
            f"| {number(c.redis_gb)} GB | {number(c.fold_mb)} MB | {number(c.replay_s)} s "
            f"| {c.instances} | {c.because} |"
        )
    return "\n".join(rows)


def limits_table(measured: Measured) -> str:
    """Return what one log carries at most, as a Markdown table."""
    worker = measured.worker_events_s * HEADROOM
    rows = (
        ("appends of one producer, pipelined", f"{number(measured.append_events_s)} events/s"),
        ("the worker, following", f"{number(measured.worker_events_s)} events/s"),
        ("tables rebuilt in bulk", f"{number(measured.rebuild_events_s)} events/s"),
        ("a fold on one core", f"{number(measured.fold_events_s)} events/s"),
        ("HTTP, single events", f"{number(measured.http_events_s)} events/s"),
        ("HTTP, batches of 100", f"{number(measured.http_batch_events_s)} events/s"),
        ("planned with, busiest minute", f"{number(worker)} events/s"),
        ("planned with, a day", f"{number(worker * DAY_S / PEAK_FACTOR / 1e6)} million events"),
        (
            "broker disk of a million events, one copy",
            (
                f"{number(measured.kafka_bytes_per_event)} to "
                f"{number(measured.kafka_bytes_per_single_event)} MB"
            ),
        ),
        *(
            (
                f"Redis, a {kind} with its indexes",
                f"{number(size + measured.redis_index_bytes_per_row)} bytes",
            )
            for kind, size in (
                ("partition", measured.redis_bytes_per_partition),
                ("build", measured.redis_bytes_per_build),
                ("job run", measured.redis_bytes_per_job_run),
                ("task", measured.redis_bytes_per_task),
            )
        ),
        ("memory of a fold, each subject", f"{number(measured.fold_bytes_per_subject)} bytes"),
        (
            f"subjects that fit into {number(FOLD_MB_MAX)} MB",
            f"{number(FOLD_MB_MAX / measured.fold_bytes_per_subject)} million",
        ),
    )
    return "\n".join(
        ["| of one log | carries |", "|---|---|", *(f"| {a} | {b} |" for a, b in rows)]
    )


def capacity_blocks(report: Report) -> dict[str, str]:
    """Return the text of each marked block of the page on capacity."""
    measured = measured_in(report)
    return {"limits": limits_table(measured), "examples": table(EXAMPLES, measured)}


def main() -> None:
    """Print the table for a platform."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.capacity", description=__doc__)
    parser.add_argument("--events-per-day", type=int, required=True)
    parser.add_argument("--partitions", type=int, required=True)
    parser.add_argument("--age-days", type=int, default=365)
    parser.add_argument("--kept-days", type=int, default=90)
    parser.add_argument("--events-per-build", type=int, default=500)
    parser.add_argument("--events-per-job-run", type=int, default=5)
    arguments = parser.parse_args()
    report = msgspec.json.decode(REPORT.read_bytes(), type=Report)
    print(table((Platform(**vars(arguments)),), measured_in(report)))


if __name__ == "__main__":
    main()
