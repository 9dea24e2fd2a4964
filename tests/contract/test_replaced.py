"""A log that is removed or replaced under who has it open, on every backend where that can be.

Readers are told, and are not given an old log, an empty one or another one for theirs; writers
are refused. Topics of Kafka that are made anew are in `tests/chaos`.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, LiteralString

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from belog.schemas.errors import BelogError, LogReplaced, NotFound, Unavailable, WrongLog
from belog.storage import EventLog, open_log
from belog.storage.testing_base import appended
from belog.storage.testing_events import observed
from tests.servers import Postgres, eventually

EVENTS: Final = 5
"""Of the log that is replaced."""

WAIT_S: Final = 30.0
"""Far longer than a waiting reader takes to notice; none here waits for it."""

PLACES: Final = ("sqlite:///{}", "file://{}", "delta://{}")

READS: Final[dict[str, Callable[[EventLog], object]]] = {
    "next_position": lambda log: log.next_position(),
    "scan": lambda log: log.scan(0),
    "scan the end": lambda log: log.scan(EVENTS),
    "read": lambda log: log.read(),
    "get_by_id": lambda log: log.get_by_id(observed(1).event_id),
    "wait": lambda log: log.wait(1000, 0),
}


LOSSES: Final[dict[str, tuple[LiteralString, ...]]] = {
    "removed": ("DELETE FROM {}.belog_ends", "DELETE FROM {}.belog_logs"),
    "another number": ("DELETE FROM {}.belog_ends", "DELETE FROM {}.belog_logs"),
    "the same number": ("DROP SCHEMA {} CASCADE",),
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "log"


def set_aside(place: Path) -> None:
    for path in place.parent.glob("log*"):
        path.rename(path.with_name(f"old-{path.name}"))


def make_other(uri: str, events: int) -> None:
    with open_log(uri) as other:
        other.initialize(instance="other")
        if events:
            appended(other, [observed(n) for n in range(5_000, 5_000 + events)])


def filled(uri: str) -> None:
    with open_log(uri) as log:
        log.initialize()
        for n in range(EVENTS):
            log.append(observed(n))


def is_told(log: EventLog, read: str, *errors: type[BelogError]) -> None:
    """Wait until a way to read ends with one of the errors."""

    def told() -> bool:
        try:
            READS[read](log)
        except errors:
            return True
        return False

    eventually(told, f"{read} is told", timeout_s=WAIT_S)


@pytest.fixture(params=PLACES, ids=lambda form: form.partition(":")[0])
def uri(request: pytest.FixtureRequest, place: Path) -> str:
    form: str = request.param
    uri = form.format(place)
    filled(uri)
    return uri


@pytest.fixture
def log(uri: str) -> Iterator[EventLog]:
    with open_log(uri) as log:
        log.initialize()
        assert log.read().events
        yield log


@pytest.mark.parametrize(
    ("events", "writes"), [(0, True), (2 * EVENTS, False)], ids=["shorter", "longer"]
)
def test_another_log_in_its_place_is_noticed_by_who_reads(
    log: EventLog,
    uri: str,
    place: Path,
    events: int,
    writes: bool,  # noqa: FBT001 - a case
) -> None:
    if writes:
        log.append(observed(900))
    set_aside(place)
    make_other(uri, events)
    # One who waits is told first: nothing else has looked yet.
    with pytest.raises(LogReplaced):
        log.wait(1000, WAIT_S)
    for read in [*READS.values(), *READS.values()]:
        with pytest.raises(LogReplaced):
            read(log)
    with pytest.raises(WrongLog):
        log.append(observed(901))
    with open_log(uri) as other:
        other.initialize()
        assert other.next_position() == 1 + events


def test_a_log_that_was_removed_is_noticed_by_who_reads(log: EventLog, place: Path) -> None:
    log.append(observed(900))
    set_aside(place)
    for name in READS:
        is_told(log, name, LogReplaced, Unavailable)
    with pytest.raises((LogReplaced, Unavailable)):
        log.append(observed(901))
    assert not place.exists()


@pytest.fixture
def postgres_uri(postgres_server: Postgres, postgres_schema: str) -> str:
    uri = f"{postgres_server.uri}?schema={postgres_schema}"
    filled(uri)
    return uri


@pytest.mark.integration
@pytest.mark.parametrize("way", [*LOSSES])
def test_a_log_in_postgresql_that_is_another_or_gone_is_noticed(
    postgres_uri: str, postgres_server: Postgres, postgres_schema: str, way: str
) -> None:
    with open_log(postgres_uri) as log:
        log.initialize()
        assert log.read().events
        log.append(observed(900))
        with psycopg.connect(postgres_server.uri, autocommit=True) as connection:
            for statement in LOSSES[way]:
                connection.execute(SQL(statement).format(Identifier(postgres_schema)))
        if way != "removed":
            make_other(postgres_uri, 2 * EVENTS)
        for name in READS:
            is_told(log, name, LogReplaced, NotFound)
        with pytest.raises((LogReplaced, NotFound)):
            log.append(observed(901))
