"""Runs racers, and checks what they were told against the log read afterwards."""

import json
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from belog.storage import EventLog
from tests.producing import DIAGRAM, OWNERLESS, UNDER_WAY, Judgement

RACER = Path(__file__).with_name("racer.py")


class Racer:
    """One process, and what it has said so far."""

    def __init__(self, uri: str, number: int, seed: str, count: int) -> None:
        self.said: list[dict[str, Any]] = []
        self.process = subprocess.Popen(
            [sys.executable, RACER, uri, str(number), seed, str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._ready = threading.Event()
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line == "ready\n":
                self._ready.set()
            elif line.endswith("\n"):
                self.said.append(json.loads(line))
        self._ready.set()

    def wait_ready(self) -> None:
        assert self._ready.wait(60)

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        self.process.kill()
        self.end()

    def end(self) -> str:
        """Wait for the end; return what it said on standard error."""
        self._reader.join()
        assert self.process.stderr is not None
        errors = self.process.stderr.read()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()
        return errors

    def require_end(self) -> None:
        errors = self.end()
        assert self.process.returncode == 0, errors


class Course(Judgement):
    """A judged log that can say what each subject's state was at any index."""

    def __init__(self, log: EventLog) -> None:
        super().__init__(log)
        self.courses: dict[str, list[tuple[int, str, str]]] = {}
        states: dict[str, str] = {}
        owners: dict[str, str] = {}
        for index, event in self.events:
            if event.subject_kind != "partition":
                continue
            ref = event.subject_id
            before = states.get(ref, "∅")
            sources, after = DIAGRAM[event.event_type]
            assert before in sources.split(), f"{event.event_type} after {before} at {index}"
            if event.event_type not in OWNERLESS and before not in UNDER_WAY:
                owners[ref] = str(event.body()["build_request_id"])
            states[ref] = before if after == "=" else after
            self.courses.setdefault(ref, []).append((index, states[ref], owners.get(ref, "")))

    def before(self, ref: str, index: int) -> tuple[int, str, str]:
        """Return index, state and owner as they were before an index."""
        found = (-1, "∅", "")
        for entry in self.courses.get(ref, ()):
            if entry[0] >= index:
                break
            found = entry
        return found

    def check(self, said: Sequence[dict[str, Any]]) -> None:
        """Every answer of a process is what the log says."""
        for answer in said:
            event_id = bytes.fromhex(answer["id"])
            if "index" in answer:
                assert self.accepted.get(event_id) == answer["index"], answer
                assert not answer["duplicate"] or answer["retries"], answer
                continue
            assert event_id not in self.accepted, answer
            last, state, owner = self.before(answer["ref"], answer["at"])
            assert (answer["last"], answer["state"] or "∅") == (last, state), answer
            assert answer["owner"] == (owner if state in UNDER_WAY else None), answer
            is_legal = state in DIAGRAM[answer["type"]][0].split()
            assert set(answer["allowed"]) == {
                t
                for t, (s, _) in DIAGRAM.items()
                if t[:12] == "v1.partition" and state in s.split()
            }
            if answer["code"] == "expected_mismatch":
                assert answer["expected"] not in {None, last}, answer
            elif answer["code"] == "not_owner":
                assert is_legal, answer
                assert answer["build"] != owner, answer
            else:
                assert answer["code"] == "illegal_transition", answer
                assert not is_legal, answer
