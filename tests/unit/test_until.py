"""Where a replay ends."""

import pytest

from belog.processors.replay import WHOLE_LOG, Until
from belog.schemas.envelope import encode_event
from belog.schemas.events import LogCreated, new_event
from belog.schemas.fold import Record
from tests.examples import T0, event, replica_value

LOG_ID = "5b1b1a52-3a3c-4d36-9d2f-5e8f0c2c7b11"


def observed_at(time_us: int) -> bytes:
    return encode_event(event("v1.partition.observed", n=time_us - T0))


def created_at(time_us: int) -> bytes:
    return encode_event(
        new_event(
            LogCreated(log_id=LOG_ID, instance="t", lifecycle_version=1),
            LOG_ID,
            event_id=bytes(16),
            actor="t",
            occurred_at=time_us,
        )
    )


@pytest.mark.parametrize(
    ("value", "is_past"),
    [
        (observed_at(T0), False),
        (observed_at(T0 + 1), True),
        (created_at(T0 + 1), False),
        (b"garbage", False),
        (None, False),
    ],
)
def test_the_first_event_that_occurred_later_ends_it(value: bytes | None, *, is_past: bool) -> None:
    record = Record(3, T0 + 9, value)
    assert Until(occurred_us=T0).excludes(record) is is_past
    assert not WHOLE_LOG.excludes(record)


def test_a_replica_ends_where_its_origin_does() -> None:
    record = Record(0, T0, replica_value(event("v1.partition.observed", n=5), 7, 6))
    assert not Until(occurred_us=T0 + 5).excludes(record)
    assert Until(occurred_us=T0 + 4).excludes(record)
    assert Until(occurred_us=T0 + 5, index=7).excludes(record)
