"""Filtered reads that cost what they return, over an index of what events concern.

The index lists, for each name (a partition, a build, a job run, a task, a label, an event type, an
actor), the events that concern it, by the rule of `belog.schemas.filters.terms_of`. It lives in the
store beside the records and is extended by its readers, in bounded steps: an append pays nothing
for it. It covers a prefix of the log; the rest, the *tail*, is held in memory, decoded, until it
is long enough to be written. Records never change, so several processes may extend one index:
whoever comes second finds that it has moved on.

For primary logs of conditional backends: their records were judged before they entered, so what
is an event counts as accepted.
"""

import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from belog.schemas.envelope import Event, StoredEvent, decode_event
from belog.schemas.errors import Corrupt
from belog.schemas.filters import NO_TERMS, EventFilter, Matcher, Terms, glob_regex, terms_of
from belog.schemas.fold import Record
from belog.schemas.limits import FILTER_TERMS_MAX, PAGE_EVENTS_MAX
from belog.schemas.payload import JsonValue, known_payload
from belog.storage.horizon import VACUUMED
from belog.storage.interface import EventPage, Statistics, check_page
from belog.storage.judged import PAGE_SCAN_RECORDS_MAX
from belog.storage.term_store import Entries, IndexState, Name, TermStore
from belog.storage.terms import (
    Field,
    PatternRange,
    exact_fields,
    is_cut,
    name_of,
    names_of,
)

__all__ = [
    "PATTERN_NAMES_MAX",
    "STEP_RECORDS_MAX",
    "TAIL_RECORDS_MAX",
    "TermIndex",
]

TAIL_RECORDS_MAX: Final = 2_000
"""Records that the tail holds before it is written: a filter is held against them in a
millisecond, and few enough reads write."""

STEP_RECORDS_MAX: Final = 10_000
"""Records by which the index grows at once while it is far behind: a quarter of a second of a
SQLite file's write lock. Smaller steps would write the same pages more often."""

CHUNK_INDICES: Final = 1_000
"""Candidates fetched in one piece."""

PATTERN_NAMES_MAX: Final = FILTER_TERMS_MAX
"""Names that the patterns of a filter may stand for to be looked up one by one; a pattern that
matches more is answered by a scan, which then finds something soon."""

HAVING_PAIRS_MAX: Final = 100_000
"""Candidates times names that the store is asked to intersect, at about 1 µs a pair; with more, the
candidates are read and matched."""

RUNS_CACHED_MAX: Final = 50_000
"""Job runs whose terms are remembered, some 20 MB."""


_Entry = tuple[StoredEvent, Terms]


class _Run(Struct, frozen=True, gc=False):
    """A job run as its first event describes it."""

    first_idx: int
    terms: Terms


class _Tail:
    """The end of the log past the index. Not thread-safe."""

    def __init__(self, state: IndexState) -> None:
        self.state = state
        self.end = state.indexed_to
        self.entries: list[_Entry] = []
        self.sizes: list[int] = []
        self.void = 0
        self.runs: dict[str, _Run] = {}


class TermIndex:
    """One process's access to an index. Thread-safe; every call may block for I/O.

    Each call first takes in what the log holds by then, at about 20 µs an event that is in no index
    yet: the first filtered read of a long log pays for all of it.
    """

    def __init__(self, store: TermStore) -> None:
        """Open nothing yet."""
        self._store = store
        self._lock = threading.Lock()
        self._tail: _Tail | None = None
        self._runs: dict[str, _Run] = {}

    # --- growing

    def _refresh(self) -> _Tail:
        """Take in what is new; the lock is held. What is returned stays valid under the lock."""
        tail = self._tail
        if tail is None:
            tail = self._tail = _Tail(self._store.state())
        while True:
            records = self._store.records(tail.end, STEP_RECORDS_MAX)
            self._take(tail, records)
            if tail.end - tail.state.indexed_to < TAIL_RECORDS_MAX:
                return tail
            if self._store.extend(tail.state.indexed_to, _entries(tail)):
                self._remember(tail.runs)
                state = _after(tail)
            else:
                state = self._store.state()
            tail = self._tail = _Tail(state)

    def _take(self, tail: _Tail, records: Sequence[Record]) -> None:
        decoded = [(record, event_of(record)) for record in records]
        bodies = [body_of(event) for _, event in decoded]
        runs = self._find_runs(_run_names(decoded, bodies), tail)
        for (record, event), body in zip(decoded, bodies, strict=True):
            tail.end = record.position + 1
            if event is None:
                tail.void += 1
                continue
            terms = _terms(event, body, record.position, runs)
            if event.subject_kind == "job_run" and event.subject_id not in runs:
                run = _Run(record.position, terms)
                runs[event.subject_id] = tail.runs[event.subject_id] = run
            tail.entries.append((StoredEvent(record.position, record.created_at, event), terms))
            tail.sizes.append(len(record.value or b""))

    def _remember(self, runs: Mapping[str, _Run]) -> None:
        if len(self._runs) + len(runs) > RUNS_CACHED_MAX:
            self._runs.clear()
        self._runs.update(runs)

    def _find_runs(self, run_ids: Iterable[str], tail: _Tail) -> dict[str, _Run]:
        """Return what is known of job runs below the tail's end; the lock is held."""
        found: dict[str, _Run] = {}
        missing: dict[str, list[str]] = {}
        for run_id in run_ids:
            run = self._runs.get(run_id) or tail.runs.get(run_id)
            if run is not None:
                found[run_id] = run
            else:
                missing.setdefault(name_of(run_id), []).append(run_id)
        if missing and tail.state.indexed_to:
            self._load_runs(missing, found)
        return found

    def _load_runs(self, missing: Mapping[str, Sequence[str]], found: dict[str, _Run]) -> None:
        firsts = self._store.first_runs(list(missing))
        loaded: dict[str, _Run] = {}
        for record in self._store.records_at(sorted(set(firsts.values()))):
            event = event_of(record)
            if event is not None and event.subject_id in missing.get(name_of(event.subject_id), ()):
                terms = terms_of(event, _no_run, body_of(event))
                loaded[event.subject_id] = _Run(record.position, terms)
        found.update(loaded)
        self._remember(loaded)

    # --- reading

    def read(self, since_idx: int, wanted: EventFilter, limit: int) -> EventPage:
        """Return a page; see `EventLog.read`.

        Raises:
            Unsupported: The index is behind and cannot be extended.
        """
        check_page(limit, since_idx)
        matcher = Matcher(wanted)
        with self._lock:
            tail = self._refresh()
            indexed_to, end, entries = tail.state.indexed_to, tail.end, tail.entries
        since, until = since_idx, end
        if wanted.created_from is not None:
            since = max(since, self._store.index_at(wanted.created_from))
        if wanted.created_to is not None:
            until = min(until, self._store.index_at(wanted.created_to))
        found: list[StoredEvent] = []
        cursor = min(until, indexed_to)
        if since < cursor:
            cursor = self._read_indexed(matcher, since, cursor, (found, limit))
        if cursor >= min(until, indexed_to):
            for stored, terms in entries:
                if len(found) == limit or stored.index >= until:
                    break
                if stored.index >= since and matcher.matches(stored, terms):
                    found.append(stored)
            cursor = end
        next_idx = found[-1].index + 1 if len(found) == limit else max(cursor, since_idx)
        return EventPage(tuple(found), next_idx, next_idx < end)

    def vacuums(self, since_idx: int) -> EventPage:
        """Return the `vacuumed` events from an index on; see `read` for what it may raise."""
        return self.read(since_idx, EventFilter(event_types=(VACUUMED,)), PAGE_EVENTS_MAX)

    def _read_indexed(
        self, matcher: Matcher, since: int, until: int, page: tuple[list[StoredEvent], int]
    ) -> int:
        """Fill a page from [since, until); return up to where everything was looked at."""
        found, limit = page
        fields = self._plan(matcher.filter)
        if any(not names for names in fields):
            return until
        looked_at = 0
        while since < until and len(found) < limit and looked_at < PAGE_SCAN_RECORDS_MAX:
            records, looked, since = self._candidates(fields, since, until, limit - len(found))
            looked_at += looked
            for stored in self._matching(matcher, records):
                found.append(stored)
                if len(found) == limit:
                    return stored.index + 1
        return since

    def _plan(self, wanted: EventFilter) -> list[Sequence[Name]]:
        """Return the names of each field that an index can answer, the rarest field first."""
        fields = [self._store.names(field, terms) for field, terms in exact_fields(wanted)]
        if wanted.partition_patterns:
            matched = self._pattern_names(wanted.partition_patterns)
            if matched is not None:
                fields.append(matched)
        return sorted(fields, key=lambda names: sum(name.events for name in names))

    def _pattern_names(self, patterns: Sequence[str]) -> list[Name] | None:
        names: dict[int, Name] = {}
        for pattern in patterns:
            within = self._store.names_within(PatternRange(pattern), PATTERN_NAMES_MAX + 1)
            if len(within) > PATTERN_NAMES_MAX:
                return None
            matches = re.compile(glob_regex(pattern), re.DOTALL).fullmatch
            names.update((n.number, n) for n in within if is_cut(n.term) or matches(n.term))
            if len(names) > PATTERN_NAMES_MAX:
                return None
        return list(names.values())

    def _candidates(
        self, fields: Sequence[Sequence[Name]], since: int, until: int, wanted: int
    ) -> tuple[Sequence[Record], int, int]:
        """Return records that may match, how many were looked at, and where to go on."""
        if not fields:
            records = self._store.records(since, CHUNK_INDICES)
            looked_at = len(records)
            if not records or records[-1].position + 1 >= until:
                return [r for r in records if r.position < until], looked_at, until
            return records, looked_at, records[-1].position + 1
        size = min(max(wanted, CHUNK_INDICES // 10), CHUNK_INDICES)
        if len(fields) > 1:
            size = CHUNK_INDICES
        indices = self._store.postings(fields[0], since, until, size)
        looked_at = len(indices)
        if looked_at == size:
            until = indices[-1] + 1
        for names in fields[1:]:
            if indices and len(indices) * len(names) <= HAVING_PAIRS_MAX:
                indices = self._store.having(indices, names)
        return (self._store.records_at(indices) if indices else ()), looked_at, until

    def _matching(self, matcher: Matcher, records: Sequence[Record]) -> Iterable[StoredEvent]:
        decoded = [(record, event_of(record)) for record in records]
        bodies: list[Mapping[str, JsonValue] | None] = []
        runs: Mapping[str, _Run] = {}
        if matcher.needs_terms:
            bodies = [body_of(event) for _, event in decoded]
            with self._lock:
                tail = self._tail
                if tail is not None:
                    runs = self._find_runs(_run_names(decoded, bodies), tail)
        for at, (record, event) in enumerate(decoded):
            if event is None:
                continue
            stored = StoredEvent(record.position, record.created_at, event)
            terms = NO_TERMS
            if matcher.needs_terms:
                terms = _terms(event, bodies[at], record.position, runs)
            if matcher.matches(stored, terms):
                yield stored

    def get_by_id(self, event_id: bytes) -> StoredEvent | None:
        """Return the first event with an id, or None; see `read` for what it may raise."""
        with self._lock:
            tail = self._refresh()
            entries = tail.entries
        index = self._store.index_of(event_id)
        if index is not None:
            for record in self._store.records_at([index]):
                event = event_of(record)
                if event is not None:
                    return StoredEvent(record.position, record.created_at, event)
        for stored, _ in entries:
            if stored.event.event_id == event_id:
                return stored
        return None

    def statistics(self) -> Statistics:
        """Count what the log holds; see `read` for what it may raise."""
        with self._lock:
            tail = self._refresh()
            state, by_type, by_kind = self._store.counts()
            while state.indexed_to != tail.state.indexed_to:
                # Another process extended the index after the look.
                self._tail = _Tail(state)
                tail = self._refresh()
                state, by_type, by_kind = self._store.counts()
        types, kinds = dict(by_type), dict(by_kind)
        for stored, _ in tail.entries:
            event = stored.event
            types[event.event_type] = types.get(event.event_type, 0) + 1
            kinds[event.subject_kind] = kinds.get(event.subject_kind, 0) + 1
        total = _after(tail)
        ends = [*self._store.records(0, 1), *self._store.records(max(tail.end - 1, 0), 1)]
        first, last = (ends[0], ends[-1]) if total.events else (None, None)
        return Statistics(
            events=total.events,
            first_index=first.position if first else None,
            last_index=last.position if last else None,
            first_created_at=first.created_at if first else None,
            last_created_at=last.created_at if last else None,
            bytes=total.bytes,
            by_type=types,
            by_subject_kind=kinds,
            void=total.void,
            gaps=tail.end - total.events - total.void,
        )


def event_of(record: Record) -> Event | None:
    """Return the event of a record, None where it holds none: such a record is void."""
    if record.value is None:
        return None
    try:
        return decode_event(record.value)
    except Corrupt:
        return None


def page_of(records: Sequence[Record], since_idx: int, limit: int) -> EventPage:
    """Return the page that records from an index on make.

    Args:
        records: As many as there are, but at most one more than `limit`.
        since_idx: First index wanted.
        limit: Most events of the page.
    """
    page = records[:limit]
    events = tuple(
        StoredEvent(record.position, record.created_at, event)
        for record in page
        if (event := event_of(record)) is not None
    )
    next_idx = page[-1].position + 1 if page else since_idx
    return EventPage(events, next_idx, len(records) > limit)


def body_of(event: Event | None) -> Mapping[str, JsonValue] | None:
    """Return the payload where it says what the event concerns; an unreadable one says nothing."""
    if event is None or event.subject_kind == "system":
        return None
    try:
        return known_payload(event.payload)
    except Corrupt:
        return {}


_Decoded = Sequence[tuple[Record, Event | None]]


def _no_run(_: str) -> None:
    """Answer for a job run's first event, before which there is none."""


def _run_names(decoded: _Decoded, bodies: Sequence[Mapping[str, JsonValue] | None]) -> set[str]:
    run_ids: set[str] = set()
    for (_, event), body in zip(decoded, bodies, strict=True):
        if event is None or body is None:
            continue
        if event.subject_kind == "job_run":
            run_ids.add(event.subject_id)
        elif event.subject_kind == "partition":
            named = body.get("job_run_id")
            if type(named) is list and named:
                named = named[0]
            if type(named) is str:
                run_ids.add(named)
    return run_ids


def _terms(
    event: Event,
    body: Mapping[str, JsonValue] | None,
    index: int,
    runs: Mapping[str, _Run],
) -> Terms:
    def earlier(run_id: str) -> Terms | None:
        run = runs.get(run_id)
        return run.terms if run is not None and run.first_idx < index else None

    return terms_of(event, earlier, body)


def _after(tail: _Tail) -> IndexState:
    state = tail.state
    return IndexState(
        tail.end,
        state.events + len(tail.sizes),
        state.void + tail.void,
        state.bytes + sum(tail.sizes),
    )


def _entries(tail: _Tail) -> Entries:
    indices: dict[tuple[Field, str], list[int]] = {}
    for stored, terms in tail.entries:
        for key in names_of(stored.event, terms):
            found = indices.get(key)
            if found is None:
                indices[key] = [stored.index]
            else:
                found.append(stored.index)
    return Entries(
        _after(tail),
        indices,
        {name_of(run_id): run.first_idx for run_id, run in reversed(tail.runs.items())},
        [(stored.event.event_id, stored.index) for stored, _ in tail.entries],
    )
