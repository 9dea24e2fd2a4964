import io
import json
import threading
from base64 import b64decode

import pytest

from belog.schemas.errors import Closed, IndexConflict, InvalidUri, Unavailable, Unsupported
from belog.schemas.payload import JsonValue, encode_payload
from belog.storage import open_log
from belog.storage.interface import Receipt
from belog.storage.stdout import StdoutLog, payload_json, rfc3339
from tests.examples import BUILD, event
from tests.writers import observed

T0 = 1_750_000_000_123_456


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def opened(stream: io.StringIO) -> StdoutLog:
    log = StdoutLog(stream, clock=lambda: T0)
    log.initialize()
    return log


def test_one_line_per_event() -> None:
    stream = io.StringIO()
    log = opened(stream)
    build = event(
        "v1.build.received", BUILD, {"requested_partitions": ["data://ü"]}, n=1, expected=-1
    )
    assert log.append(build) == Receipt(1, T0, build.event_id)
    first, second = lines(stream)
    assert first["eventType"] == "v1.system.log_created"
    assert second == {
        "index": "1",
        "createdAt": "2025-06-15T15:06:40.123456Z",
        "eventId": "00000000-0000-0000-0000-000000000001",
        "eventType": "v1.build.received",
        "subjectKind": "build",
        "subjectId": BUILD,
        "actor": "tester",
        "occurredAt": "2025-06-15T15:06:40.000001Z",
        "payloadDigest": second["payloadDigest"],
        "expected": "-1",
        "payload": {"requested_partitions": ["data://ü"]},
    }
    assert b64decode(str(second["payloadDigest"])) == build.payload_digest


def test_values_that_json_has_no_form_for() -> None:
    body: dict[str, JsonValue] = {
        "b": b"\x00\xff",
        "n": [float("nan"), float("-inf")],
        "m": {"deep": b"x"},
        "i": 2**62,
    }
    assert json.loads(payload_json(encode_payload(body))) == {
        "b": "AP8=",
        "n": ["NaN", "-Infinity"],
        "m": {"deep": "eA=="},
        "i": 2**62,
    }
    assert json.loads(payload_json(b"\xff")) == "/w=="
    assert rfc3339(2**63 - 1) == str(2**63 - 1)
    assert rfc3339(-1) == "1969-12-31T23:59:59.999999Z"


def test_reading_is_refused_with_a_way_out() -> None:
    log = opened(io.StringIO())
    assert not log.capabilities.readable
    for read in (
        lambda: log.scan(0),
        lambda: log.wait(0, 1),
        log.read,
        lambda: log.get(0),
        lambda: log.get_by_id(bytes(16)),
        log.end,
        log.statistics,
        lambda: log.vacuum(0),
        lambda: log.copy_records([], after=0),
        lambda: next(log.follow()),
        lambda: StdoutLog(io.StringIO()).initialize(replica=True),
    ):
        with pytest.raises(Unsupported, match="sqlite:///path"):
            read()


def test_positions_are_compared_and_the_end_is_final() -> None:
    stream = io.StringIO()
    log = opened(stream)
    with pytest.raises(IndexConflict):
        log.append(observed(1), at=5)
    assert len(lines(stream)) == 1
    assert log.append(observed(1), at=1).index == 1
    log.close()
    with pytest.raises(Closed):
        log.append(observed(2))


def test_a_reader_that_is_gone_is_unavailable() -> None:
    stream = io.StringIO()
    log = opened(stream)
    stream.close()
    with pytest.raises(Unavailable):
        log.append(observed(1))
    assert log.next_position() == 1


def test_lines_of_threads_do_not_mix() -> None:
    stream = io.StringIO()
    log = opened(stream)

    def work(thread: int) -> None:
        for n in range(50):
            log.append(observed(thread * 100 + n))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [line["index"] for line in lines(stream)] == [str(n) for n in range(201)]


def test_the_uri_names_it(capsys: pytest.CaptureFixture[str]) -> None:
    with open_log("stdout:") as log:
        log.initialize()
    assert json.loads(capsys.readouterr().out)["index"] == "0"
    with pytest.raises(InvalidUri):
        open_log("stdout:x")
