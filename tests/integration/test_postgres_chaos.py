"""The PostgreSQL log under many writers, and while writers and the server are killed.

`BELOG_TEST_POSTGRES_EVENTS=20000` and `BELOG_TEST_POSTGRES_KILLS=30` make the runs as long as they
are before a release; the usual ones take seconds.
"""

import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from functools import partial

import pytest

from belog.schemas.errors import BelogError, OutcomeUnknown
from belog.storage.postgres import PostgresLog
from tests.integration.log_workers import ids_of, observed
from tests.integration.many_writers import check_many_writers
from tests.integration.postgres_workers import opened
from tests.servers import Postgres, eventually

pytestmark = [pytest.mark.integration, pytest.mark.chaos, pytest.mark.timeout(1200)]

EVENTS = int(os.environ.get("BELOG_TEST_POSTGRES_EVENTS", "4000"))
KILLS = int(os.environ.get("BELOG_TEST_POSTGRES_KILLS", "4"))
ACKS_MAX = 400
"""Acknowledged events after which a victim is killed at the latest."""


def test_followers_miss_nothing_of_many_writers(
    postgres_server: Postgres, postgres_schema: str, seed: int
) -> None:
    uri = f"{postgres_server.uri}?schema={postgres_schema}"
    check_many_writers(uri, EVENTS, seed)


@contextmanager
def victim(uri: str, writer: int) -> Iterator[subprocess.Popen[bytes]]:
    """A process that appends for ever."""
    command = [sys.executable, "-m", "tests.integration.postgres_workers", uri, str(writer)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def test_killed_writers_lose_nothing(
    postgres_server: Postgres, postgres_schema: str, seed: int
) -> None:
    chooser = random.Random(f"{seed}-writers")
    uri = f"{postgres_server.uri}?schema={postgres_schema}"
    acknowledged: list[tuple[bytes, int]] = []
    with opened(uri) as log:
        for run in range(KILLS):
            with ExitStack() as stack:
                writers = [2 * run, 2 * run + 1]
                victims = [stack.enter_context(victim(uri, writer)) for writer in writers]
                acks = chooser.randrange(ACKS_MAX)
                lines = [read_lines(process, acks) for process in victims]
                for process in victims:
                    process.kill()
                for writer, process, early in zip(writers, victims, lines, strict=True):
                    late = process.stdout.readlines() if process.stdout else []
                    acknowledged += [acked(line, writer) for line in early + late]
            # Nobody's lock is left behind.
            receipt = log.append(observed(run, writer=10_000))
            acknowledged.append((receipt.event_id, receipt.index))
        held = ids_of(log)
    assert set(acknowledged) <= set(held)
    assert len({event_id for event_id, _ in held}) == len(held)


def read_lines(process: subprocess.Popen[bytes], count: int) -> list[bytes]:
    assert process.stdout is not None
    return [process.stdout.readline() for _ in range(count)]


def acked(line: bytes, writer: int) -> tuple[bytes, int]:
    number, index = line.split()
    return observed(int(number), writer=writer).event_id, int(index)


class Endurer:
    """A thread that goes on appending through crashes of the server, and keeps what it was told."""

    def __init__(self, uri: str, writer: int) -> None:
        self.acknowledged: list[tuple[bytes, int]] = []
        self.unknown: list[bytes] = []
        self.stop = threading.Event()
        self.error: Future[None] = Future()
        self._writer = writer
        self._log = PostgresLog(uri)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            with self._log as log:
                log.initialize()
                self._append(log)
            self.error.set_result(None)
        except BaseException as error:  # noqa: BLE001 - it is raised by `join`
            self.error.set_exception(error)

    def _append(self, log: PostgresLog) -> None:
        n = 0
        while not self.stop.is_set():
            event = observed(n, writer=self._writer)
            n += 1
            try:
                receipt = log.append(event)
            except OutcomeUnknown as error:
                self.unknown.append(error.event_id)
            except BelogError as error:
                if not error.retriable:
                    raise
            else:
                self.acknowledged.append((receipt.event_id, receipt.index))

    def join(self) -> None:
        self.stop.set()
        self._thread.join()
        self.error.result()


def count_acknowledged(endurers: Sequence[Endurer]) -> int:
    return sum(len(endurer.acknowledged) for endurer in endurers)


def has_acknowledged(endurers: Sequence[Endurer], count: int) -> bool:
    return count_acknowledged(endurers) >= count


def test_killed_server_loses_nothing(new_postgres: Callable[..., Postgres], seed: int) -> None:
    chooser = random.Random(f"{seed}-server")
    server = new_postgres().start()
    seen: list[tuple[bytes, int]] = []
    stop = threading.Event()

    def tail() -> None:
        with opened(server.uri) as log:
            cursor = 0
            while not stop.is_set():
                try:
                    for stored in log.follow(cursor, stop=stop):
                        seen.append((stored.event.event_id, stored.index))
                        cursor = stored.index + 1
                except BelogError as error:
                    if not error.retriable:
                        raise

    with opened(server.uri) as log:
        log.append(observed(0, writer=10_000))
    follower = threading.Thread(target=tail)
    follower.start()
    endurers = [Endurer(server.uri, writer) for writer in range(3)]
    for _ in range(KILLS):
        until = count_acknowledged(endurers) + chooser.randrange(1, ACKS_MAX)
        eventually(partial(has_acknowledged, endurers, until))
        server.restart()
    for endurer in endurers:
        endurer.join()
    with opened(server.uri) as log:
        held = ids_of(log)
        eventually(lambda: len(seen) >= len(held))
    stop.set()
    follower.join()
    known = {event_id for endurer in endurers for event_id, _ in endurer.acknowledged}
    unknown = {event_id for endurer in endurers for event_id in endurer.unknown}
    for endurer in endurers:
        assert set(endurer.acknowledged) <= set(held)
    assert seen == held
    written = {event_id for event_id, _ in held[2:]}
    assert written <= known | unknown
    assert len(written) == len(held) - 2
