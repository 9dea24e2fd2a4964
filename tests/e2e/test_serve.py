"""`belog serve` as an operator starts and stops it."""

import json
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.e2e.program import PROGRAM, belog, environment
from tests.servers import eventually, free_port

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

ANSWER_S = 30.0


class Service:
    """A running `belog serve`, and what it said."""

    def __init__(self, process: "subprocess.Popen[str]", url: str) -> None:
        self.process = process
        self.url = url

    def get(self, path: str) -> dict[str, object]:
        with urlopen(self.url + path, timeout=ANSWER_S) as answer:  # noqa: S310 - our own
            found: dict[str, object] = json.loads(answer.read())
            return found

    def post(self, path: str, body: object) -> dict[str, object]:
        data = json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        with urlopen(Request(self.url + path, data, headers), timeout=ANSWER_S) as answer:  # noqa: S310
            found: dict[str, object] = json.loads(answer.read())
            return found

    def end(self, number: signal.Signals) -> tuple[int, str]:
        self.process.send_signal(number)
        _, said = self.process.communicate(timeout=ANSWER_S)
        return self.process.returncode, said


@contextmanager
def serving(folder: Path, arguments: Sequence[str] = ()) -> Iterator[Service]:
    port = free_port()
    process = subprocess.Popen(
        [PROGRAM, "serve", "--port", str(port), *arguments],
        cwd=folder,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    service = Service(process, f"http://127.0.0.1:{port}")
    try:
        eventually(
            lambda: service.get("/healthz"),
            "it answers",
            timeout_s=ANSWER_S,
            ignoring=(OSError,),
            unless=lambda: None if process.poll() is None else f"it ended: {process.communicate()}",
        )
        yield service
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


def requested(ref: str) -> dict[str, object]:
    return {
        "event_type": "v1.partition.requested",
        "subject_id": ref,
        "body": {"build_request_id": "build-1"},
    }


def test_one_command_serves_a_log_of_its_own_and_survives_being_killed(tmp_path: Path) -> None:
    with serving(tmp_path) as service:
        assert service.post("/events", requested("sales/1"))["index"] == "1"
        code, said = service.end(signal.SIGKILL)
        assert code == -signal.SIGKILL
        assert "everyone on this machine may do everything" in said
    with serving(tmp_path) as service:
        assert service.get("/partitions/sales%2F1")["status"] == "REQUESTED"
        assert service.get("/status")["next_idx"] == "2"
        foreign = Request(service.url + "/status", headers={"Host": "evil.example"})  # noqa: S310
        with pytest.raises(HTTPError) as refused:
            urlopen(foreign, timeout=ANSWER_S)  # noqa: S310 - our own
        with refused.value as answer:
            assert answer.code == 421
        again = belog("serve", "--port", service.url.rpartition(":")[2], cwd=tmp_path)
        assert again.code == 5
        assert "is it running already?" in again.err
    # Nothing but the log is left, and commands can read it directly.
    (event,) = (
        belog("events", "--log", "sqlite:///belog.db", "--since", "1", "--json", cwd=tmp_path)
        .ok()
        .json()
    )
    assert event["subject_id"] == "sales/1"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_answers_those_who_wait_and_ends_it(
    tmp_path: Path, number: signal.Signals
) -> None:
    with serving(tmp_path) as service:
        answers: list[object] = []

        def wait() -> None:
            try:
                answers.append(service.get("/events?since=1&wait_s=60"))
            except HTTPError as error:
                with error:
                    answers.append(error.code)

        waiting = threading.Thread(target=wait)
        waiting.start()
        eventually(lambda: "belog_feed_waiters 1.0" in metrics(service), "one waits")
        code, said = service.end(number)
        waiting.join(ANSWER_S)
        assert code == 0, said
        assert answers == [503]
        assert "stopping" in said


def test_another_log_in_the_place_of_the_own_ends_it(tmp_path: Path) -> None:
    with serving(tmp_path, ["--log", "sqlite:///log.db"]) as service:
        for path in tmp_path.glob("log.db*"):
            path.rename(path.with_name(f"old-{path.name}"))
        belog(
            "append", "v1.partition.observed", "b", "--log", "sqlite:///log.db", cwd=tmp_path
        ).ok()
        _, said = service.process.communicate(timeout=ANSWER_S)
    assert service.process.returncode == 1
    (error,) = [line for line in said.splitlines() if line.startswith("error: ")]
    assert "log.db was removed, or another file put in its place, while it was open" in error
    assert "restart what has it open" in error
    assert len(belog("events", "--log", "sqlite:///log.db", cwd=tmp_path).ok().lines()) == 2


def test_the_dashboard_is_there_and_runs_only_what_is_its_own(tmp_path: Path) -> None:
    with serving(tmp_path) as service:
        for path, media_type in (
            ("/", "text/html"),
            ("/dashboard.js", "text/javascript"),
            ("/dashboard.css", "text/css"),
        ):
            with urlopen(service.url + path, timeout=ANSWER_S) as answer:  # noqa: S310 - our own
                assert answer.headers.get_content_type() == media_type
                assert "script-src 'self'" in answer.headers["content-security-policy"]


def metrics(service: Service) -> str:
    with urlopen(service.url + "/metrics", timeout=ANSWER_S) as answer:  # noqa: S310 - our own
        return str(answer.read().decode())


def test_a_port_that_is_taken_and_a_bind_that_lets_everyone_in_are_refused(tmp_path: Path) -> None:
    with serving(tmp_path) as service:
        port = service.url.rpartition(":")[2]
        taken = belog("serve", "--port", port, "--log", "sqlite:///other.db", cwd=tmp_path)
        assert (taken.code, taken.out) == (5, "")
        assert "Address already in use" in taken.err
    open_to_all = belog("serve", "--host", "0.0.0.0", "--port", "0", cwd=tmp_path)  # noqa: S104
    assert open_to_all.code == 2
    assert "without tokens" in open_to_all.err
    assert not (tmp_path / "other.db").exists()


def test_a_log_that_cannot_be_reached_is_said_at_once(tmp_path: Path) -> None:
    done = belog(
        "serve", "--log", f"kafka://127.0.0.1:{free_port()}/x", "--port", "0", cwd=tmp_path
    )
    assert done.code == 5
    assert "Traceback" not in done.err
