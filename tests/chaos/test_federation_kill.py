"""Both instances of a federation are killed at any point: each reaction happens once."""

import random
from pathlib import Path

import pytest

from belog.client import Client, Delegated
from belog.schemas.events import PartitionAvailable, PartitionBuilding, PartitionScheduled
from belog.schemas.filters import EventFilter
from tests.service_process import ServiceProcess

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(240)]

PARTITIONS = 24
KILLS = 3


def test_what_is_made_upstream_is_said_once_here(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    up = ServiceProcess(f"sqlite:///{tmp_path}/up.db", tmp_path)
    down = ServiceProcess(
        f"sqlite:///{tmp_path}/down.db",
        tmp_path,
        configuration=f'[federation.upstreams.up]\nurl = "{up.url}"\npatterns = ["up/**"]\n',
    )
    refs = [f"up/{n}" for n in range(PARTITIONS)]
    kills = dict.fromkeys(draw.sample(range(PARTITIONS), KILLS))
    with up, down, Client(up.url, retry_s=60) as there, Client(down.url, retry_s=60) as here:
        for n, ref in enumerate(refs):
            answer = here.request_partition(ref, client_id="me")
            assert isinstance(answer, Delegated)
            build = answer.build_request_id
            there.append(PartitionScheduled(build_request_id=build), ref)
            there.append(PartitionBuilding(build_request_id=build), ref)
            there.append(PartitionAvailable(build_request_id=build), ref)
            if n in kills:
                # At once: the other side is in the middle of it.
                victim = draw.choice([up, down])
                victim.restart()
        for ref in refs:
            assert here.wait(ref, timeout_s=60) is not None
        wanted = EventFilter(partition_patterns=("up/*",))
        said = [stored.event for stored, _ in here.follow(0, wanted, idle_s=0)]
        cursors = here.events(0, EventFilter(event_types=("v1.federation.cursor_moved",)))
    for ref in refs:
        assert [event.event_type for event in said if event.subject_id == ref] == [
            f"v1.partition.{name}" for name in ("requested", "delegated", "available")
        ]
    assert len({event.event_id for event in said}) == len(said)
    # One for each reaction, and one for the first start.
    assert 1 <= len(cursors.events) <= PARTITIONS + 1
