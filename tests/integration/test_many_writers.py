"""Logs in files that many processes write to, and others follow.

`BELOG_TEST_SQLITE_EVENTS=20000` and `BELOG_TEST_DELTA_EVENTS=1000` make the runs as long as they
are before a release; the usual ones take seconds.
"""

import os
from pathlib import Path

import pytest

from tests.integration.many_writers import check_many_writers

pytestmark = [pytest.mark.integration, pytest.mark.chaos, pytest.mark.timeout(1200)]

SQLITE_EVENTS = int(os.environ.get("BELOG_TEST_SQLITE_EVENTS", "4000"))
DELTA_EVENTS = int(os.environ.get("BELOG_TEST_DELTA_EVENTS", "240"))


@pytest.mark.parametrize(("scheme", "events"), [("sqlite", SQLITE_EVENTS), ("delta", DELTA_EVENTS)])
def test_followers_miss_nothing_of_many_writers(
    tmp_path: Path, scheme: str, events: int, seed: int
) -> None:
    uri = {"sqlite": f"sqlite:///{tmp_path}/log.db", "delta": f"delta://{tmp_path}/log"}[scheme]
    check_many_writers(uri, events, seed)
