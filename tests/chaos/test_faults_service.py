"""What clients see of a service that is killed or stands still, or whose disk is full."""

import json
import os
import signal
import uuid
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest

from tests.chaos.deployment import Deployment
from tests.chaos.faults.disks import small_disk
from tests.chaos.site import injected
from tests.e2e.test_serve import serving

pytestmark = [pytest.mark.chaos, pytest.mark.e2e, pytest.mark.timeout(180)]

AS_ROOT = os.geteuid() == 0


def observed(event_id: uuid.UUID, message: str = "") -> dict[str, object]:
    return {
        "event_id": str(event_id),
        "event_type": "v1.partition.observed",
        "subject_id": "a/1",
        "occurred_at": "5",
        "body": {"message": message},
    }


def answer(url: str, body: object = None, timeout_s: float = 30.0) -> tuple[int, str]:
    """Ask, and return the status and the text of the answer."""
    data = None if body is None else json.dumps(body).encode()
    request = Request(url, data, {"Content-Type": "application/json"})  # noqa: S310 - our own
    try:
        with urlopen(request, timeout=timeout_s) as found:  # noqa: S310 - our own
            return found.status, found.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_a_service_that_is_killed(tmp_path: Path) -> None:
    event = observed(uuid.uuid4())
    with serving(tmp_path) as service:
        service.process.send_signal(signal.SIGSTOP)
        with pytest.raises(TimeoutError):
            answer(f"{service.url}/events", event, timeout_s=0.5)
        service.process.send_signal(signal.SIGCONT)
        first = json.loads(answer(f"{service.url}/events", event)[1])
        assert answer(f"{service.url}/readyz")[0] == 200
        service.end(signal.SIGKILL)
        with pytest.raises(URLError, match="Connection refused"):
            answer(f"{service.url}/readyz")
    with serving(tmp_path) as service:
        assert answer(f"{service.url}/readyz") == (200, '{"ok":true,"reasons":[]}')
        again = json.loads(answer(f"{service.url}/events", event)[1])
        assert first["index"] == again["index"] == "1"
        assert again["duplicate"] is True


@pytest.mark.parametrize("size_kb", [600] if AS_ROOT else [])
def test_a_service_whose_disk_is_full(tmp_path: Path, size_kb: int) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    uri = f"sqlite:///{disk}/log.db"
    event = observed(uuid.uuid4(), "x" * 16_000)
    deployment = Deployment("sqlite", tmp_path, uri, uuid.UUID(int=0))
    with small_disk(disk, size_kb), serving(tmp_path, ["--log", uri]) as service:
        with injected("disk-full", deployment):
            status, text = answer(f"{service.url}/events", event)
            problem = json.loads(text)
            assert (status, problem["code"]) == (503, "unavailable")
            assert "nothing was written: database or disk is full" in text
            assert answer(f"{service.url}/events")[0] == 200
            assert answer(f"{service.url}/readyz")[0] == 200
            metrics = answer(f"{service.url}/metrics")[1]
            assert 'belog_errors_total{code="unavailable",component="log"}' in metrics
        assert json.loads(answer(f"{service.url}/events", event)[1])["index"] == "1"
        assert answer(f"{service.url}/readyz")[0] == 200
