"""Series: told of together where all land in a row, one by one from the first that does not."""

import random
from collections.abc import Sequence

import pytest

from belog.schemas.errors import OutcomeUnknown
from belog.storage.interface import SendReport
from belog.storage.sending import OnReport, Series

FIRST = 7


class Told:
    """What a writer was told, in order; a run as one list of times."""

    def __init__(self) -> None:
        self.heard: list[list[int] | tuple[int, SendReport]] = []

    def landed(self, created_at: list[int]) -> None:
        self.heard.append(created_at)

    def reported(self, number: int, report: SendReport) -> None:
        self.heard.append((number, report))


def started(count: int) -> tuple[Told, Series, list[OnReport]]:
    told = Told()
    waiting: list[OnReport] = []
    series = Series(lambda _key, _value, report: waiting.append(report), FIRST, told)
    for n in range(count):
        series.send(b"%d" % n, b"value")
    return told, series, waiting


def in_a_row(count: int) -> list[SendReport]:
    return [SendReport(FIRST + n, 100 + n) for n in range(count)]


@pytest.mark.parametrize("before_end", range(4))
def test_what_lands_in_a_row_is_told_once_and_not_before_the_end(before_end: int) -> None:
    told, series, waiting = started(3)
    reports = in_a_row(3)
    for take, report in zip(waiting[:before_end], reports, strict=False):
        take(report)
    assert told.heard == []
    series.end()
    for take, report in zip(waiting[before_end:], reports[before_end:], strict=True):
        take(report)
    assert told.heard == [[100, 101, 102]]


LOST = SendReport(-1, 0, OutcomeUnknown("lost", event_id=b""))


@pytest.mark.parametrize("odd", [LOST, SendReport(FIRST + 20, 5), SendReport(FIRST - 1, 5)])
@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("ended_at", range(5))
def test_each_has_its_report_where_one_is_off(odd: SendReport, place: int, ended_at: int) -> None:
    told, series, waiting = started(4)
    reports = [*in_a_row(4)]
    reports[place] = odd
    for n, (take, report) in enumerate(zip(waiting, reports, strict=True)):
        if n == ended_at:
            series.end()
        take(report)
    if ended_at == len(reports):
        series.end()
    assert told.heard == list(enumerate(reports))


def test_a_series_without_records_tells_nothing() -> None:
    told, series, _ = started(0)
    series.end()
    assert told.heard == []


def test_who_could_not_send_counts_what_went_off() -> None:
    told = Told()
    waiting: list[OnReport] = []

    def send(_key: bytes, value: bytes, report: OnReport) -> None:
        if value == b"too many":
            raise OverflowError
        waiting.append(report)

    series = Series(send, FIRST, told)
    series.send(b"a", b"fits")
    with pytest.raises(OverflowError):
        series.send(b"b", b"too many")
    assert series.sent == 1
    series.end()
    waiting[0](SendReport(FIRST, 9))
    assert told.heard == [[9]]


def positions(draw: random.Random, count: int) -> Sequence[int]:
    at = FIRST
    found: list[int] = []
    for _ in range(count):
        at += draw.choice((0, 0, 0, 0, 0, 0, 1))
        found.append(at)
        at += 1
    return found


def test_every_record_is_accounted_for_once() -> None:
    for seed in range(200):
        draw = random.Random(seed)
        count = draw.randrange(1, 12)
        told, series, waiting = started(count)
        landed = positions(draw, count)
        end_at = draw.randrange(count + 1)
        for n, (take, at) in enumerate(zip(waiting, landed, strict=True)):
            if n == end_at:
                series.end()
            take(SendReport(at, at))
        if end_at == count:
            series.end()
        (first, *_) = told.heard
        if landed == list(range(FIRST, FIRST + count)):
            assert told.heard == [landed], f"seed {seed}"
        else:
            assert first == (0, SendReport(landed[0], landed[0])), f"seed {seed}"
            assert [at for at, _ in told.heard] == list(range(count)), f"seed {seed}"


def test_what_is_reported_out_of_turn_is_not_taken_for_another() -> None:
    """The third is given up while it waits to be sent; the fourth lands in its place."""
    told, series, waiting = started(4)
    series.end()
    waiting[0](SendReport(FIRST, 100))
    waiting[2](LOST)
    waiting[1](SendReport(FIRST + 1, 101))
    waiting[3](SendReport(FIRST + 2, 102))
    assert told.heard == [
        (0, SendReport(FIRST, 100)),
        (2, LOST),
        (1, SendReport(FIRST + 1, 101)),
        (3, SendReport(FIRST + 2, 102)),
    ]


def test_a_record_in_the_place_of_one_that_is_not_reported_yet_is_none_in_a_row() -> None:
    told, series, waiting = started(3)
    series.end()
    waiting[0](SendReport(FIRST, 100))
    waiting[2](SendReport(FIRST + 1, 102))
    waiting[1](LOST)
    assert told.heard == [
        (0, SendReport(FIRST, 100)),
        (2, SendReport(FIRST + 1, 102)),
        (1, LOST),
    ]
