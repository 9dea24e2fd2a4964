"""Laws of queries over random logs: they answer what a look at everything would."""

import random
from collections.abc import Callable

from belog.processors.indexes import upstream_of
from belog.processors.memory_tables import MemoryTables
from belog.processors.rows import BuildRow, JobRunRow, PartitionRow
from belog.query import PartitionEventQuery, QueryEngine
from belog.query.answers import GraphEdge
from belog.query.lineage import DEPTH_MAX
from belog.query.log_events import FIRST_WINDOW_INDICES, filter_of, read_range
from belog.schemas.envelope import StoredEvent
from belog.schemas.filters import EventFilter
from belog.schemas.lifecycle import LIFECYCLE_1
from belog.storage.interface import CopiedRecord
from belog.storage.memory import MemoryLog
from tests.examples import LOG_ID, T0
from tests.table_logs import BUILDS, REFS, random_records

RECORDS = 2 * FIRST_WINDOW_INDICES
QUERIES = 150


def random_world(rng: random.Random) -> QueryEngine:
    """A log of legal, illegal and odd records with holes, and its tables."""
    log = MemoryLog(clock=lambda: T0)
    log.initialize(log_id=LOG_ID)
    copied = [
        CopiedRecord(item.position, item.created_at, item.value)
        for item in random_records(rng, RECORDS)[1:]
        if item.value is not None
    ]
    log.copy_records(copied, after=0)
    tables = MemoryTables()
    tables.catch_up(log)
    return QueryEngine(tables, log)


def random_query(rng: random.Random, end: int) -> PartitionEventQuery:
    def some(values: tuple[str, ...], most: int) -> tuple[str, ...]:
        return tuple(rng.sample(values, rng.randrange(most)))

    times = sorted(T0 + 1000 * rng.randrange(end) for _ in range(2))
    return PartitionEventQuery(
        partition_refs=some((*REFS, "never"), 4),
        states=some(LIFECYCLE_1.states("partition"), 4),
        build_ids=some(BUILDS, 2),
        created_from=times[0] if rng.random() < 0.3 else None,
        created_to=times[1] if rng.random() < 0.3 else None,
        since_idx=rng.randrange(end) if rng.random() < 0.3 else 0,
    )


def everything(log: MemoryLog, wanted: EventFilter, since: int) -> list[StoredEvent]:
    found: list[StoredEvent] = []
    while True:
        page = log.read(since, wanted)
        found.extend(page.events)
        since = page.next_idx
        if not page.has_more:
            return found


def test_pages_in_both_orders_are_cuts_of_all_that_matches(seed: int) -> None:
    rng = random.Random(seed)
    queries = random_world(rng)
    log = queries.log
    assert isinstance(log, MemoryLog)
    end = log.next_position()
    matched = 0
    for _ in range(QUERIES):
        query = random_query(rng, end)
        expected = everything(log, filter_of(query), query.since_idx)
        matched += len(expected)
        assert queries.events.count(query).value.value == len(expected)
        offset, limit = rng.randrange(8), rng.randrange(1, 40)
        for newest_first in (False, True):
            ordered = expected[::-1] if newest_first else expected
            page = queries.events.query(
                query, newest_first=newest_first, offset=offset, limit=limit
            )
            assert list(page.events) == ordered[offset : offset + limit], query
            assert page.has_more == (len(ordered) > offset + limit), query
    assert matched > QUERIES, "the queries match next to nothing"


def test_a_range_holds_its_own_indices_only(seed: int) -> None:
    rng = random.Random(seed)
    log = random_world(rng).log
    assert isinstance(log, MemoryLog)
    every = everything(log, EventFilter(), 0)
    for _ in range(QUERIES):
        low, high = sorted(rng.randrange(log.next_position() + 1) for _ in range(2))
        within = [stored for stored in every if low <= stored.index < high]
        limit = rng.randrange(1, 2 * RECORDS)
        for newest_first, ordered in ((False, within), (True, within[::-1])):
            page = read_range(
                log, EventFilter(), (low, high), limit=limit, newest_first=newest_first
            )
            assert list(page.events) == ordered[:limit]
            assert page.has_more == (len(ordered) > limit)


def reached(start: str, step: Callable[[str], set[str]]) -> set[str]:
    found, left = {start}, [start]
    while left:
        new = step(left.pop()) - found
        found |= new
        left.extend(new)
    return found


def test_a_graph_holds_all_that_can_be_reached_up_or_down(seed: int) -> None:
    queries = random_world(random.Random(seed))
    rows = {row.ref: row for row in queries.tables.list_rows(PartitionRow, limit=1_000).rows}
    up = {ref: set(upstream_of(row)) for ref, row in rows.items()}
    down = {ref: {other for other, deps in up.items() if ref in deps} for ref in REFS}
    assert any(up.values()), "nothing depends on anything"
    for root in (*REFS, "never"):
        for depth in (1, DEPTH_MAX):
            graph = queries.dependency_graph(root, depth).value
            refs = [node.ref for node in graph.nodes]
            assert len(refs) == len(set(refs))
            if depth == 1:
                expected = {root} | up.get(root, set()) | down.get(root, set())
            else:
                expected = reached(root, lambda ref: up.get(ref, set())) | reached(
                    root, lambda ref: down.get(ref, set())
                )
            assert set(refs) == expected, root
            needs = {(e.source, e.target) for e in graph.edges if e.kind == "DEPENDS_ON"}
            assert needs == {(a, b) for a in expected for b in up.get(a, ()) if b in expected}
            for edge in graph.edges:
                if edge.kind == "PRODUCES":
                    assert GraphEdge(edge.target, edge.source, "DEPENDS_ON") in graph.edges
                    assert rows[edge.target].has_data


def test_every_partition_is_explained_by_its_own_last_event(seed: int) -> None:
    queries = random_world(random.Random(seed))
    for row in queries.tables.list_rows(PartitionRow, limit=1_000).rows:
        found = queries.explain(row.ref).value
        assert found is not None
        (first,) = (cause for cause in found.causes if cause.link == "state")
        assert (first.index, first.subject_id) == (row.index, row.ref)
        indices = [cause.index for cause in found.causes]
        assert indices == sorted(set(indices), reverse=True)
        latest = queries.events.latest(row.ref).value
        assert latest is not None
        assert latest.index == row.index


def test_counts_since_an_index_are_those_of_the_rows(seed: int) -> None:
    rng = random.Random(seed)
    queries = random_world(rng)
    for kind in (PartitionRow, BuildRow, JobRunRow):
        rows = queries.tables.list_rows(kind, limit=1_000).rows
        for state in {row.state for row in rows}:
            for index in (0, *(rng.randrange(queries.tables.applied()) for _ in range(20))):
                expected = sum(row.state == state and row.index >= index for row in rows)
                assert queries.tables.count_since(kind.kind, state, index) == expected
