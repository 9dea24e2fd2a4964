"""Runs the benchmarks: `python -m benchmarks [NAME …] [--page] [--quick] [--json FILE]`.

With --page the results go into docs/benchmarks.json, beside those of modules that were not run,
and the tables into docs/benchmarks.md and docs/capacity.md.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Final

from benchmarks.machine import machine
from benchmarks.measure import Constant, Figure, Series
from benchmarks.pages import keep
from benchmarks.plan import BENCHES, LARGE, SUITE_S_MAX, Bench
from benchmarks.profiling import profiles
from benchmarks.report import (
    Profile,
    Report,
    Result,
    figures_table,
    line,
    profile_table,
    series_table,
    to_json,
)
from benchmarks.rival_venv import REQUIREMENTS, rival_python
from benchmarks.servers import Servers

Found = Figure | Series | Constant
Run = Callable[[Servers], Iterable[Found]]

PROFILE: Final = "profile"
"""The name under which the profiles are asked for: no module of figures, so without a budget."""


def main() -> int:
    """Run what was asked for; exit with 1 where a bound that must hold does not."""
    known = {**BENCHES, **LARGE}
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join([*known, PROFILE]))
    parser.add_argument("--page", action="store_true", help="write docs/benchmarks.* anew")
    parser.add_argument("--quick", action="store_true", help="do a twentieth of the work")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was found there")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(known) - {PROFILE}
    if unknown:
        parser.error(f"there is no benchmark {', '.join(sorted(unknown))}")
    names = arguments.names or [*BENCHES, PROFILE]
    if {"rivals", "postgres"} & set(names):
        # Before the clock: the first time this takes longer than they do.
        rival_python(*REQUIREMENTS)
    started = time.perf_counter()
    results: dict[str, Result] = {}
    found: tuple[Profile, ...] = ()
    try:
        with ExitStack() as stack:
            servers = Servers(stack, quick=arguments.quick)
            for name in names:
                if name == PROFILE:
                    found = profiles(servers)
                else:
                    results[name] = run_one(name, known[name], servers)
    finally:
        # What was found is worth keeping where a later module fails.
        took_s = time.perf_counter() - started
        print(f"{took_s:.0f} s, of {SUITE_S_MAX} s for the suite", file=sys.stderr)
        report = Report(machine=machine(), results=results, profiles=found)
        show(report)
        if arguments.json is not None:
            arguments.json.write_bytes(to_json(report))
        if arguments.page:
            keep(report)
    figures = [figure for result in results.values() for figure in result.figures]
    return 1 if any(figure.verdict == "missed" for figure in figures) else 0


def show(report: Report) -> None:
    """Print the tables."""
    results = report.results.values()
    print(figures_table(figure for result in results for figure in result.figures))
    for series in (series for result in results for series in result.series):
        print(f"\n{series_table(series)}")
    for profile in report.profiles:
        print(f"\n{profile_table(profile)}")


def run_one(name: str, bench: Bench, servers: Servers) -> Result:
    """Run one module, say what it finds as it does, and how long it took."""
    run: Run = import_module(bench.module).run
    load = os.getloadavg()[0]
    started = time.perf_counter()
    found: list[Found] = []
    for one in run(servers):
        found.append(one)
        print(f"  {line(one)}", file=sys.stderr, flush=True)
    took_s = time.perf_counter() - started
    late = "" if took_s <= bench.budget_s else ": LONGER THAN IT MAY"
    print(f"{name}: {took_s:.0f} of {bench.budget_s} s{late}", file=sys.stderr, flush=True)
    return Result(
        seconds=took_s,
        budget_s=bench.budget_s,
        load_before=load,
        quick=servers.quick,
        date=datetime.now(UTC).date().isoformat(),
        figures=tuple(one for one in found if isinstance(one, Figure)),
        series=tuple(one for one in found if isinstance(one, Series)),
        constants=tuple(one for one in found if isinstance(one, Constant)),
    )


if __name__ == "__main__":
    sys.exit(main())
