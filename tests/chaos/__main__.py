"""`python -m tests.chaos run|soak|replay`: chaos runs by hand.

Exit code 1 where a contradiction was found; it is printed, and the folder of the run is kept.
"""

import argparse
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

from tests.chaos.crew import Task, end_on_signals, reports
from tests.chaos.deployment import Backend
from tests.chaos.faults import FAULTS
from tests.chaos.running import WORK_S, Report, plan_of
from tests.chaos.systems import BACKENDS

SEED_BITS = 32


def main() -> int:
    """Do what the command line says; return the exit code."""
    end_on_signals()
    arguments = _parser().parse_args()
    folder: Path = arguments.folder
    folder.mkdir(parents=True, exist_ok=True)
    faults: list[str] | None = None
    if arguments.faults is not None:
        faults = [name for name in arguments.faults.split(",") if name]
        if unknown := set(faults) - set(FAULTS):
            sys.stderr.write(f"no such fault: {', '.join(sorted(unknown))}\n")
            return 2
    began = time.monotonic()
    done: list[Report] = []
    for report in reports(_tasks(arguments, faults), arguments.jobs, go_on=arguments.go_on):
        done.append(report)
        _say(report.text() if not report.is_good else report.line())
    return _summary(done, time.monotonic() - began)


def _tasks(arguments: argparse.Namespace, faults: list[str] | None) -> Iterator[Task]:
    folder: Path = arguments.folder.resolve()
    for number, (seed, backend) in enumerate(_seeds(arguments)):
        plan = plan_of(seed, backend, faults, arguments.work_s)
        place = folder / f"{backend}-{seed}-{os.getpid()}-{number}"
        yield Task(plan, place, arguments.keep)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--backend", action="append", choices=BACKENDS, help="default: all")
    common.add_argument("--faults", help=f"names, comma-separated, of: {', '.join(FAULTS)}")
    common.add_argument("--work-s", type=float, default=WORK_S, help="how long each run works")
    common.add_argument("--folder", type=Path, default=Path(".cache/chaos"))
    common.add_argument("--keep", action="store_true", help="keep the folders of good runs, too")
    common.add_argument("--go-on", action="store_true", help="go on after a contradiction")
    common.add_argument(
        "--jobs", type=int, default=1, help="runs side by side, default: %(default)s"
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("run", "replay"):
        one = commands.add_parser(name, parents=[common], help="one seed, over all backends given")
        one.add_argument("--seed", required=True)
    soak = commands.add_parser("soak", parents=[common], help="many seeds")
    soak.add_argument("--runs", type=int, default=None)
    soak.add_argument("--hours", type=float, default=None)
    soak.add_argument("--seed", default=None, help="the first; drawn where it is not given")
    return parser


def _seeds(arguments: argparse.Namespace) -> Iterator[tuple[str, Backend]]:
    backends: list[Backend] = arguments.backend or list(BACKENDS)
    if arguments.command != "soak":
        yield from ((arguments.seed, backend) for backend in backends)
        return
    first = arguments.seed or str(random.SystemRandom().getrandbits(SEED_BITS))
    _say(f"soak from seed {first}")
    hours = arguments.hours if arguments.hours or arguments.runs else 1.0
    deadline = None if hours is None else time.monotonic() + hours * 3600
    number = 0
    while (arguments.runs is None or number < arguments.runs) and (
        deadline is None or time.monotonic() < deadline
    ):
        yield f"{first}-{number}", backends[number % len(backends)]
        number += 1


def _summary(reports: list[Report], took_s: float) -> int:
    bad = [report for report in reports if not report.is_good]
    by_backend: dict[str, list[Report]] = {}
    for report in reports:
        by_backend.setdefault(report.plan.shape.backend, []).append(report)
    faults = Counter(fault for report in reports for fault in report.faults)
    _say(
        f"{len(reports)} runs ({', '.join(f'{len(r)} {b}' for b, r in by_backend.items())}),"
        f" {sum(r.events for r in reports)} events, {sum(r.attempts for r in reports)} attempts,"
        f" {sum(faults.values())} faults of {len(faults)} kinds, {len(bad)} contradictions"
    )
    means = (
        f"{name} {fmean(r.wall_s for r in own):.0f} s ({fmean(r.cpu_s for r in own):.0f})"
        for name, own in by_backend.items()
    )
    _say(f"{took_s:.0f} s in all; a run took (of a processor, servers apart): {', '.join(means)}")
    for report in bad:
        shape = report.plan.shape
        names = None if report.plan.faults is None else ",".join(report.plan.faults)
        only = "" if names is None else f" --faults '{names}'"
        _say(
            f"replay: python -m tests.chaos replay --seed {report.plan.seed}"
            f" --backend {shape.backend} --work-s {report.plan.work_s:g}{only}   ({report.folder})"
        )
    return 1 if bad else 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
