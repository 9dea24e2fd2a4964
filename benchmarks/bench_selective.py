"""Selective reads of a million events in SQLite and PostgreSQL, against a scan of ours."""

from collections.abc import Iterator
from typing import Final

from belog.schemas.envelope import decode_event
from belog.schemas.filters import EventFilter, Matcher, Terms, terms_of
from belog.storage import open_log
from belog.storage.interface import CopiedRecord, EventLog
from benchmarks.counting import ids_in
from benchmarks.measure import Figure, absolute, timed
from benchmarks.million import REF, Million
from benchmarks.servers import Servers

HITS: Final = 100
"""Ten partitions with ten events each."""
READS: Final = 20
OPENED_READS: Final = 3
COPIED: Final = 5_000
"""Records of one call that fills PostgreSQL."""


def run(servers: Servers) -> Iterator[Figure]:
    """Yield the making of the index, and reads by it, on both backends."""
    million = servers.million
    yield from _selective("SQLite", million.uri, million)
    uri = f"{servers.postgres.uri}?schema=selective"
    _copy(million, uri)
    yield from _selective("PostgreSQL", uri, million)


def _copy(million: Million, uri: str) -> None:
    with open_log(million.uri) as here, open_log(uri) as there:
        here.initialize()
        there.initialize(log_id=million.identity.log_id, empty=True)
        cursor = 0
        while records := here.scan(cursor, COPIED):
            copies = [CopiedRecord(r.position, r.created_at, r.value or b"") for r in records]
            there.copy_records(copies, after=cursor - 1)
            cursor = records[-1].position + 1
        # Every record has a value, so equal ids in order are equal logs but for the payloads.
        assert sum(1 for _ in ids_in(there)) == million.count


def _selective(name: str, uri: str, million: Million) -> Iterator[Figure]:
    first = million.partitions // 2
    wanted = EventFilter(partition_refs=tuple(f"{REF}{first + n}" for n in range(HITS // 10)))
    with open_log(uri) as log:
        log.initialize()
        index_s = timed(lambda: log.read(0, wanted, 1))
        yield absolute(
            f"{name}, first filtered read of {million.count:,} events: the index is made",
            "events/s",
            [million.count / index_s],
            must=0,
            aim=20_000,
        )
        hits = [stored.event.event_id for stored in log.read(0, wanted).events]
        found: list[bytes] = []
        # A scan is slow enough to be timed once; a read is not.
        scan_s = timed(lambda: found.extend(_scanned(log, wanted)))
        assert set(hits) >= set(found)
        reads = [timed(lambda: _read(uri, wanted, hits)) for _ in range(OPENED_READS)]
        warm = [timed(lambda: log.read(0, wanted)) for _ in range(READS)]
        yield absolute(
            f"{name}, selective read ({len(hits)} hits of {million.count:,}) against a scan",
            "times faster",
            [scan_s / warm_s for warm_s in warm],
            must=100,
            aim=1000,
            checked=f"{len(set(found) - set(hits))} missed, {len(hits) - len(set(hits))} doubled; "
            f"scan {scan_s:.2f} s, read {min(warm) * 1e3:.2f} ms, in a process that just opened "
            f"the log {min(reads) * 1e3:.1f} ms",
        )


def _read(uri: str, wanted: EventFilter, hits: list[bytes]) -> None:
    """Read as a process does that just opened the log."""
    with open_log(uri) as log:
        log.initialize()
        page = log.read(0, wanted)
        assert [stored.event.event_id for stored in page.events] == hits
        assert not page.has_more


def _scanned(log: EventLog, wanted: EventFilter) -> list[bytes]:
    """Find what a filter wants without an index: look at every event."""
    matcher = Matcher(wanted)
    runs: dict[str, Terms] = {}
    found: list[bytes] = []
    cursor = 0
    while records := log.scan(cursor):
        cursor = records[-1].position + 1
        for record in records:
            event = decode_event(record.value or b"")
            terms = terms_of(event, runs.get)
            if event.subject_kind == "job_run":
                runs.setdefault(event.subject_id, terms)
            if any(ref in matcher.filter.partition_refs for ref in terms.partition_refs):
                found.append(event.event_id)
    return found
