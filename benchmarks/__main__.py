"""Runs the benchmarks and prints a table: `python -m benchmarks [NAME …] [--json FILE]`."""

import argparse
import platform
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.measure import Figure
from benchmarks.servers import Servers

Bench = Callable[[Servers], Iterable[Figure]]

BENCHES: Final[Mapping[str, str]] = {
    "fold": "benchmarks.bench_fold",
    "sqlite": "benchmarks.bench_sqlite",
    "rivals": "benchmarks.bench_rivals_sqlite",
    "postgres": "benchmarks.bench_postgres",
    "file": "benchmarks.bench_file",
    "kafka": "benchmarks.bench_kafka",
    "tables": "benchmarks.bench_tables",
    "sink": "benchmarks.bench_sink",
    "migrate": "benchmarks.bench_migrate",
    "index": "benchmarks.bench_index",
    "snapshot": "benchmarks.bench_snapshot",
    "query": "benchmarks.bench_query",
    "grpc": "benchmarks.bench_grpc",
}
"""Name → module; each has `run(servers)`, which yields figures."""


def main() -> int:
    """Run what was asked for; exit with 1 where a bound that must hold does not."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHES))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(BENCHES)
    if unknown:
        parser.error(f"there is no benchmark {', '.join(sorted(unknown))}")
    figures: list[Figure] = []
    with ExitStack() as stack:
        servers = Servers(stack)
        for name in arguments.names or BENCHES:
            bench: Bench = import_module(BENCHES[name]).run
            for figure in bench(servers):
                figures.append(figure)
                print(line(figure), file=sys.stderr, flush=True)
    print(table(figures))
    if arguments.json is not None:
        report = {"machine": machine(), "figures": msgspec.to_builtins(figures)}
        arguments.json.write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")
    return 1 if any(figure.verdict == "missed" for figure in figures) else 0


def machine() -> dict[str, str]:
    """Return what the figures were taken on."""
    packages = ("belog", "confluent-kafka", "redis", "fastavro", "cbor2", "blake3", "msgspec")
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        **{name: version(name) for name in packages},
    }


def line(figure: Figure) -> str:
    """Return a figure as one line of progress."""
    return f"{figure.name}: {number(figure.value)} ({figure.verdict})"


def number(value: float) -> str:
    """Return a figure with the digits that mean something."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def table(figures: Iterable[Figure]) -> str:
    """Return figures as a Markdown table."""
    rows = [
        "| work | ours | against | theirs | value (low–high) | must | aim | reached | checked |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for f in figures:
        sign = "≥" if f.better == "higher" else "≤"
        theirs = "–" if f.theirs is None else f"{number(f.theirs)} {f.unit}"
        rows.append(
            f"| {f.name} | {number(f.ours)} {f.unit} | {f.against or '–'} | {theirs} "
            f"| {number(f.value)} ({number(f.low)}–{number(f.high)}) "
            f"| {sign} {number(f.must)} | {sign} {number(f.aim)} | {f.verdict} "
            f"| {f.checked or '–'} |"
        )
    return "\n".join(rows)


if __name__ == "__main__":
    sys.exit(main())
