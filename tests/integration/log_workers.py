"""What tests of logs with many writers run in processes of their own."""

import random
from collections.abc import Iterator

from belog.schemas.envelope import Event
from belog.schemas.errors import IndexConflict
from belog.schemas.events import PartitionObserved, new_event
from belog.storage import EventLog, open_log
from belog.storage.interface import ConditionalLog, Receipt

T0 = 1_750_000_000_000_000


def observed(n: int, *, writer: int = 0) -> Event:
    """An event whose id says who wrote it as which."""
    return new_event(
        PartitionObserved(source="test"),
        f"data/{writer}/{n}",
        event_id=writer.to_bytes(8, "big") + n.to_bytes(8, "big"),
        actor=f"writer-{writer}",
        occurred_at=T0 + n,
    )


def groups(count: int, chooser: random.Random) -> Iterator[range]:
    start = 0
    while start < count:
        size = min(chooser.choice([1, 1, 1, 7, 40]), count - start)
        yield range(start, start + size)
        start += size


def append_in_turns(log: ConditionalLog, events: list[Event], way: int) -> list[int]:
    """Append by one of the three ways there are; return the indices."""
    if way == 0:
        return [log.append(event).index for event in events]
    while True:
        end = log.next_position()
        try:
            if way == 1:
                return [r.index for r in log.append_unless_touched(events, seen_idx=end)]
            # Compare-and-append starves among eight writers, so it has its few.
            results = log.append_batch(events)
            return [r.index for r in results if isinstance(r, Receipt)]
        except IndexConflict:
            continue


def write(uri: str, writer: int, count: int, seed: str) -> list[tuple[bytes, int]]:
    """Append `count` events in every way there is; return ids and the indices they were told."""
    chooser = random.Random(seed)
    told: list[tuple[bytes, int]] = []
    with open_log(uri) as log:
        log.initialize()
        assert isinstance(log, ConditionalLog)
        for group in groups(count, chooser):
            events = [observed(n, writer=writer) for n in group]
            indices = append_in_turns(log, events, chooser.randrange(3))
            told += zip((event.event_id for event in events), indices, strict=True)
    return told


def follow(uri: str, until: int) -> list[tuple[int, bytes, int]]:
    """Follow a log from its start up to an index; return indices, ids and times as they came."""
    seen: list[tuple[int, bytes, int]] = []
    with open_log(uri) as log:
        log.initialize()
        for stored in log.follow():
            seen.append((stored.index, stored.event.event_id, stored.created_at))
            if stored.index == until:
                break
    return seen


def ids_of(log: EventLog) -> list[tuple[bytes, int]]:
    """Ids and indices of a whole log, checking that neither indices nor times have a flaw."""
    found: list[tuple[bytes, int]] = []
    cursor, last_created_at, has_more = 0, 0, True
    while has_more:
        page = log.read(cursor)
        for stored in page.events:
            assert stored.index == len(found)
            assert stored.created_at >= last_created_at
            last_created_at = stored.created_at
            found.append((stored.event.event_id, stored.index))
        cursor, has_more = page.next_idx, page.has_more
    return found
