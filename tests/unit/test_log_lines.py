"""What a worker says of an outage, and how little client libraries add to it."""

import json
import logging

import pytest

from belog.processors.log_lines import LOGGER, Outage, Seldom, log_event
from belog.schemas.errors import Unavailable


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_an_outage_is_told_at_both_ends_and_in_between(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, LOGGER.name)
    outage = Outage(60, clock)
    outage.is_over()
    for _ in range(48):
        outage.lasts(Unavailable("no answer"))
        clock.now += 0.25
    outage.is_over()
    outage.is_over()
    said = [json.loads(record.message) for record in caplog.records]
    assert [(line["event"], line.get("since_s")) for line in said] == [
        ("unavailable", 0),
        ("unavailable", 5),
        ("unavailable", 10),
        ("available", None),
    ]
    assert said[0]["error"] == "no answer"
    assert said[-1]["after_s"] == 12


def test_an_outage_ends_with_its_error_after_the_time(clock: Clock) -> None:
    outage = Outage(60, clock)
    for last in (False, True):
        outage.lasts(Unavailable("no answer"))
        clock.now += 60
        outage.lasts(Unavailable("no answer"))
        clock.now += 0.1
        if last:
            with pytest.raises(Unavailable):
                outage.lasts(Unavailable("no answer"))
        outage.is_over()


def test_the_same_message_passes_seldom(clock: Clock) -> None:
    seldom = Seldom(clock)

    def passed(text: str, *args: object, name: str = "aiokafka", level: int = 40) -> str | None:
        record = logging.LogRecord(name, level, __file__, 1, text, args, None)
        return record.getMessage() if seldom.filter(record) else None

    said = [passed("no node %s on port %s", n, 9000 + n) for n in range(50)]
    assert [text for text in said if text] == ["no node 0 on port 9000"]
    assert passed("another thing") == "another thing"
    assert passed("no node 1 on port 2", name="other") == "no node 1 on port 2"
    assert passed("no node 1 on port 2", level=30) == "no node 1 on port 2"
    for own in (LOGGER.name, "belog", "belog.access"):
        assert [passed("mine", name=own) for _ in range(3)] == ["mine"] * 3
    for other in ("belog.storage.kafka", "belogger"):
        assert [passed("not mine", name=other) for _ in range(2)] == ["not mine", None]
    clock.now += 10
    assert passed("no node 7 on port 1") == "no node 7 on port 1 (and 49 like it)"
    assert passed("no node 7 on port 1") is None
    clock.now += 10
    assert passed("no node 7 on port 1") == "no node 7 on port 1 (and 1 like it)"
    assert passed("another thing") == "another thing"


def test_what_was_told_is_remembered_within_bounds(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("belog.processors.log_lines.MESSAGES_MAX", 3)
    seldom = Seldom(clock)
    told = [seldom.filter(logging.LogRecord("x", 40, "", 1, text, (), None)) for text in "abcdcdaa"]
    assert told == [True, True, True, True, True, False, True, False]


def test_lines_are_json(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOGGER.name)
    log_event("started", log="é", path=b"x")
    assert json.loads(caplog.records[0].message) == {"event": "started", "log": "é", "path": "b'x'"}
