"""Writers with a spool, and the service, are killed at any point: nothing is lost or doubled."""

import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from belog.client import Client, Spool, flush
from tests.servers import eventually
from tests.service_process import ServiceProcess

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(240)]

ROOT = Path(__file__).parents[2]
KILLS = 6


class Writer:
    """A process that records, and what it said."""

    def __init__(self, url: str, folder: Path, name: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.spool_writer", url, folder, name],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.said: list[tuple[str, bytes]] = []
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            word, _, event_id = line.rstrip("\n").partition(" ")
            if len(event_id) == 32:
                self.said.append((word, bytes.fromhex(event_id)))

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self._thread.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


def test_what_was_recorded_is_in_the_log_once_and_in_order(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    folder = tmp_path / "spool"
    writers: list[Writer] = []
    with ServiceProcess(f"sqlite:///{tmp_path}/log.db", tmp_path) as service:
        with Client(service.url) as client:
            client.append("v1.job.scheduled", "run", {"build_request_id": "b"})
        live = [Writer(service.url, folder, f"{n}") for n in range(2)]
        writers += live
        for kill in range(KILLS):
            victim = draw.randrange(3)
            count = draw.randrange(1, 25)
            marks = [len(writer.said) + count for writer in live]
            eventually(
                lambda marks=marks: any(  # type: ignore[misc]
                    len(w.said) >= m for w, m in zip(live, marks, strict=True)
                ),
                "somebody records",
                timeout_s=40,
            )
            if victim == 2:
                service.kill()
                # They go on, on their disk.
                mark = len(live[0].said) + 6
                eventually(lambda m=mark: len(live[0].said) >= m, timeout_s=30)  # type: ignore[misc]
                service.start()
            else:
                live[victim].kill()
                live[victim] = Writer(service.url, folder, f"{2 + kill}")
                writers.append(live[victim])
        for writer in live:
            writer.kill()
        with Client(service.url) as client, Spool(folder) as spool:
            done = flush(spool, client)
            assert (done.left, done.refused, done.error) == (0, 0, None)
            assert spool.conflicts() == []
            there = [stored.event.event_id for stored, _ in client.follow(2, idle_s=0)]
    assert len(there) == len(set(there))
    place = {event_id: n for n, event_id in enumerate(there)}
    for writer in writers:
        kept = [event_id for word, event_id in writer.said if word == "kept"]
        tried = {event_id for word, event_id in writer.said if word == "try"}
        places = [place[event_id] for event_id in kept]
        assert places == sorted(places)
        assert set(kept) <= tried
    assert set(there) <= {event_id for writer in writers for _, event_id in writer.said}
    assert len(there) > 50
