"""Many chaos runs, one after the other or several side by side.

Those side by side share nothing but the machine: each is a process of its own with its own broker,
Redis and PostgreSQL. Most of a run is waiting, so two or three of them keep a small machine busy;
what is waited for is a condition, and only the bounds on healing know the clock.
"""

import multiprocessing
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty
from typing import Any

from tests.chaos.checking import Contradiction
from tests.chaos.running import Plan, Report, run
from tests.chaos.systems import Servers

__all__ = ["Task", "end_on_signals", "reports"]

LOOK_S = 1.0
"""How often it is looked whether all processes still live, seconds."""


@dataclass(frozen=True)
class Task:
    """One run to do."""

    plan: Plan
    folder: Path
    keep: bool = False


def reports(tasks: Iterator[Task], jobs: int, *, go_on: bool) -> Iterator[Report]:
    """Do runs; yield what they came to, as they end.

    Args:
        tasks: Asked for the next one when there is room for it.
        jobs: How many at once.
        go_on: Whether to begin more runs after a contradiction.
    """
    if jobs > 1:
        yield from _side_by_side(tasks, jobs, go_on=go_on)
        return
    with Servers() as servers:
        for task in tasks:
            report = _done(task, servers)
            yield report
            if not report.is_good and not go_on:
                return


def _side_by_side(tasks: Iterator[Task], jobs: int, *, go_on: bool) -> Iterator[Report]:
    context = multiprocessing.get_context("spawn")
    wanted: Any = context.Queue()
    done: Any = context.Queue()
    workers = [context.Process(target=_work, args=(wanted, done)) for _ in range(jobs)]
    try:
        for worker in workers:
            worker.start()
        under_way = 0
        is_over = False
        while not is_over or under_way:
            while not is_over and under_way < jobs:
                task = next(tasks, None)
                is_over = task is None
                if task is not None:
                    wanted.put(task)
                    under_way += 1
            if under_way:
                report = _next(done, workers)
                under_way -= 1
                is_over = is_over or not (report.is_good or go_on)
                yield report
        for _ in workers:
            wanted.put(None)
        for worker in workers:
            worker.join()
    finally:
        # By a signal, so that each takes its servers along.
        for worker in workers:
            if worker.is_alive():
                worker.terminate()
        for worker in workers:
            if worker.pid is not None:
                worker.join()


def _next(done: Any, workers: list[Any]) -> Report:  # noqa: ANN401 - a queue of a context
    while True:
        with suppress(Empty):
            report: Report = done.get(timeout=LOOK_S)
            return report
        for worker in workers:
            if not worker.is_alive():
                msg = f"a process that does runs ended with {worker.exitcode}"
                raise RuntimeError(msg)


def _work(wanted: Any, done: Any) -> None:  # noqa: ANN401 - queues of a context
    end_on_signals()
    with Servers() as servers:
        while (task := wanted.get()) is not None:
            done.put(_done(task, servers))


def _done(task: Task, servers: Servers) -> Report:
    """Do one run. What breaks the harness itself is bad, and no reason to give up the others."""
    try:
        return run(task.plan, task.folder, servers, keep=task.keep)
    except Exception as error:  # noqa: BLE001 - told in the report
        said = "".join(traceback.format_exception(error))
        broken = Contradiction("harness", f"the run could not be done: {error!r}", (said,))
        return Report(task.plan, task.folder, [broken])


def end_on_signals() -> None:
    """Take servers along when asked to end."""

    def end(*_: object) -> None:
        # Once: a second one would interrupt what the first began.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        sys.exit(1)

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
