"""Faults that can befall a deployment, by name; composable, and random by their seed alone.

`FAULTS[name]()` is a new one for one run. The name says what happens; `does` is one line for
people, and `allows` states what it may do to the promises (see `tests.chaos.deployment`): nothing,
for most.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, get_args

from tests.chaos.deployment import Kind
from tests.chaos.faults.basis import BaseFault
from tests.chaos.faults.clocks import ClocksOff, SkewedClock, clock_file
from tests.chaos.faults.disks import DiskFull, can_mount, small_disk
from tests.chaos.faults.network import Network, Trouble
from tests.chaos.faults.processes import Frozen, Killed
from tests.chaos.faults.proxy import Proxy, advertised
from tests.chaos.faults.records import ForeignRecords, NewerRecord, garbage, oversize
from tests.chaos.faults.tables import RedisFlushed, RedisOlder, TwoWorkers
from tests.chaos.faults.topics import BrokerOlder, FastCompaction, TopicRecreated

__all__ = [
    "FAULTS",
    "BaseFault",
    "Proxy",
    "SkewedClock",
    "advertised",
    "can_mount",
    "clock_file",
    "small_disk",
]

GARBAGE_RECORDS_MAX: Final = 20
OVERSIZE_RECORDS_MAX: Final = 2
"""A megabyte each."""

KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
TROUBLES: Final[tuple[Trouble, ...]] = get_args(Trouble)

FAULTS: Final[Mapping[str, Callable[[], BaseFault]]] = {
    **{f"{kind}-killed": partial(Killed, kind) for kind in KINDS},
    **{f"{kind}-frozen": partial(Frozen, kind) for kind in KINDS},
    **{f"connections-{trouble}": partial(Network, trouble) for trouble in TROUBLES},
    "redis-flushed": RedisFlushed,
    "redis-older": RedisOlder,
    "two-workers": TwoWorkers,
    "broker-older": BrokerOlder,
    "topic-recreated": TopicRecreated,
    "compaction-fast": FastCompaction,
    "disk-full": DiskFull,
    "clocks-off": ClocksOff,
    "garbage-records": partial(ForeignRecords, "garbage-records", garbage, GARBAGE_RECORDS_MAX),
    "oversize-records": partial(ForeignRecords, "oversize-records", oversize, OVERSIZE_RECORDS_MAX),
    "newer-record": NewerRecord,
}
