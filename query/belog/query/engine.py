"""The query engine: questions about partitions, builds and jobs, answered from tables and log.

Tables answer whatever they can; single events are read from the log at an index that a row names.
The log is searched for event queries and audits only; `belog.query.log_events` says what it costs.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from belog.processors.indexes import Order, Where
from belog.processors.rows import BuildRow, JobRunRow, PartitionRow, R, TaskRow
from belog.processors.tables import PAGE_ROWS, PAGE_ROWS_MAX
from belog.query.activity import ACTIVITY_ROWS_MAX, WINDOW_S, first_since, index_of, lag_of
from belog.query.answers import (
    ActiveBuild,
    Activity,
    Answer,
    BuildSummary,
    Dependency,
    Explanation,
    Graph,
    Link,
    Listing,
    Rates,
)
from belog.query.causes import (
    CAUSES_MAX,
    UNDER_WAY,
    WAITS_FOR_MAX,
    Surroundings,
    chain_of,
    clues,
    explanation,
    names_of,
)
from belog.query.lineage import Walk
from belog.query.table_queries import TableQueries
from belog.schemas.envelope import StoredEvent

__all__ = ["SUMMARY_REFS_MAX", "SUMMARY_ROWS_MAX", "QueryEngine"]

SUMMARY_ROWS_MAX: Final = 10_000
"""Rows of each kind that a build's summary counts: as many as one build may ask for."""

SUMMARY_REFS_MAX: Final = 1_000
"""Missing partitions that a summary lists."""

DEPTH: Final = 10
"""Depth of a graph when nothing is said."""


class QueryEngine(TableQueries):
    """Answers questions about one log. Thread-safe; every call blocks for its round trips."""

    # --- partitions

    def latest_partition_status(self, ref: str) -> Answer[PartitionRow | None]:
        """Return a partition's row, None for one that was never seen."""
        found = self.tables.get(PartitionRow, ref)
        return Answer(found.value, found.applied)

    def latest_partition_statuses(
        self, refs: Sequence[str]
    ) -> Answer[tuple[PartitionRow | None, ...]]:
        """Return the rows of partitions, in the order of the refs, all as of one index.

        Raises:
            LimitExceeded: More than `GET_ROWS_MAX`.
        """
        found = self.tables.get_many(PartitionRow, refs)
        return Answer(found.value, found.applied)

    def active_builds_for_partition(self, ref: str) -> Answer[tuple[ActiveBuild, ...]]:
        """Return who makes a partition, who waits for it, and who will want it.

        That is the owner of the attempt, if one is under way, then the builds that joined it, then
        those that asked for it and are not that far; the latter two only while they are not ended.
        The last are looked for among all active builds.
        """
        found = self.tables.get(PartitionRow, ref)
        row = found.value
        active = () if row is None else self._active_builds((row,))
        known = {build.build_id for build in active}
        asking = [
            ActiveBuild(
                partition=ref,
                build_id=build.build_id,
                role="asked",
                status="" if row is None else row.state,
                build_state=build.state,
                requesting_clients=() if build.client_id is None else (build.client_id,),
                started_at=build.received_at,
            )
            for build in self.all_rows(BuildRow, Where(active=True, partition=ref))
            if build.build_id not in known
        ]
        return Answer((*active, *asking), found.applied)

    def active_builds(
        self, *, cursor: str | None = None, limit: int = PAGE_ROWS
    ) -> tuple[tuple[ActiveBuild, ...], Listing[PartitionRow]]:
        """Return who makes the partitions under way, a page of partitions at a time.

        Returns:
            The builds, owners before those that joined; and the page they were made from, with its
            cursor.
        """
        page = self.list_rows(PartitionRow, Where(active=True), cursor=cursor, limit=limit)
        return self._active_builds(page.rows), page

    def _active_builds(self, rows: Sequence[PartitionRow]) -> tuple[ActiveBuild, ...]:
        pairs = [
            (row, build_id)
            for row in rows
            if row.attempt is not None and row.state in UNDER_WAY
            for build_id in (row.attempt.build_id, *row.attempt.joined_builds)
        ]
        builds = self.by_id(BuildRow, [build_id for _, build_id in pairs])
        found: list[ActiveBuild] = []
        for row, build_id in pairs:
            attempt, build = row.attempt, builds.get(build_id)
            is_owner = attempt is not None and build_id == attempt.build_id
            if attempt is None or (not is_owner and build is not None and _has_ended(build)):
                continue
            found.append(
                ActiveBuild(
                    partition=row.ref,
                    build_id=build_id,
                    role="owner" if is_owner else "joined",
                    status=row.state,
                    build_state=None if build is None else build.state,
                    requesting_clients=attempt.requesting_clients,
                    started_at=attempt.requested_at,
                )
            )
        return tuple(found)

    def dependency_graph(self, ref: str, depth: int = DEPTH) -> Answer[Graph]:
        """Return what a partition is made from and what is made from it, over all graphs.

        Takes two looks per level, and one per partition whose dependents are asked for; by the
        index of dependents, so at most `DEPS_INDEXED_MAX` upstream partitions of each are seen from
        above.

        Args:
            ref: Where to start; need not have been seen.
            depth: Edges from there outwards, 0 to `DEPTH_MAX`.

        Raises:
            InvalidFilter: The depth is below 0.
            LimitExceeded: It is over its bound.
        """
        walk = Walk(ref, depth=depth)
        as_of: int | None = None
        while walk.go_on():
            found = self.tables.get_many(PartitionRow, walk.to_load)
            as_of = found.applied if as_of is None else as_of
            walk.loaded(found.value)
            for asked in walk.to_ask:
                if walk.is_truncated:
                    break
                page = self.tables.list_rows(
                    PartitionRow, Where(upstream=asked), limit=PAGE_ROWS_MAX
                )
                walk.dependents(page.rows, is_whole=page.next_cursor is None)
            walk.next_level()
        return Answer(walk.graph(), as_of or 0)

    def explain(self, ref: str) -> Answer[Explanation | None]:
        """Return why a partition is in its state: the events that led to it, the latest first.

        Follows `caused_by` from the event that made the state, and adds what its attempt, job run
        and build say. Reads at most about ten single events at indices that rows name, and for each
        cause that is not among them (at most `CAUSES_MAX`) one by its id: an index look-up on
        SQLite and PostgreSQL; elsewhere a scan of the log where the cause is older than the last
        `DUPLICATE_WINDOW_EVENTS` events.
        """
        found = self.tables.get(PartitionRow, ref)
        row = found.value
        if row is None:
            return Answer(None, found.applied)
        around = self._surroundings(row)
        loaded: list[tuple[StoredEvent, Link]] = [
            (stored, link)
            for index, link in clues(around).items()
            if (stored := self.log.get(index)) is not None
        ]
        causes = chain_of((*self._causes(loaded), *loaded))
        return Answer(explanation(around, causes), found.applied)

    def _surroundings(self, row: PartitionRow) -> Surroundings:
        run_id, build_id, cause = names_of(row)
        waits: list[Dependency] = []
        if row.state in UNDER_WAY and row.attempt is not None and row.attempt.upstream_deps:
            deps = tuple(dict.fromkeys(row.attempt.upstream_deps))
            rows = self.by_id(PartitionRow, deps)
            for dep in deps:
                state = rows[dep].state if dep in rows else ""
                if state != "available" and len(waits) < WAITS_FOR_MAX:
                    waits.append(Dependency(dep, state))
        return Surroundings(
            row=row,
            job_run=None if run_id is None else self.tables.get(JobRunRow, run_id).value,
            build=None if build_id is None else self.tables.get(BuildRow, build_id).value,
            upstream=None if cause is None else self.tables.get(PartitionRow, cause).value,
            dependencies=tuple(waits),
        )

    def _causes(
        self, loaded: Sequence[tuple[StoredEvent, Link]]
    ) -> Iterator[tuple[StoredEvent, Link]]:
        by_id = {stored.event.event_id: stored for stored, _ in loaded}
        at = next((stored for stored, link in loaded if link == "state"), None)
        if at is None:
            return
        yield at, "state"
        seen = {at.index}
        for _ in range(CAUSES_MAX):
            cause_id = at.event.caused_by
            if cause_id is None:
                return
            at = by_id.get(cause_id) or self.log.get_by_id(cause_id)
            if at is None or at.index in seen:
                return
            seen.add(at.index)
            yield at, "caused_by"

    # --- builds

    def build_request_summary(self, build_id: str) -> Answer[BuildSummary | None]:
        """Return a build request with what became of its parts, None where there is none.

        By the index of rows by build: costs as much as it has parts, at most `SUMMARY_ROWS_MAX` of
        each kind.
        """
        found = self.tables.get(BuildRow, build_id)
        row = found.value
        if row is None:
            return Answer(None, found.applied)
        where = Where(build_id=build_id)
        partitions, is_partial = self._states(PartitionRow, where)
        job_runs, more_runs = self._states(JobRunRow, where)
        tasks, more_tasks = self._states(TaskRow, where)
        asked = tuple(dict.fromkeys(row.requested_partitions))
        known = self.by_id(PartitionRow, asked)
        states = {ref: known[ref].state if ref in known else "" for ref in asked}
        missing = [ref for ref, state in states.items() if state != "available"]
        end = row.ended_at if row.ended_at is not None else self.clock()
        summary = BuildSummary(
            row=row,
            requested=dict(sorted(Counter(states.values()).items())),
            missing=tuple(missing[:SUMMARY_REFS_MAX]),
            partitions=partitions,
            job_runs=job_runs,
            tasks=tasks,
            duration_us=None if row.received_at is None else max(0, end - row.received_at),
            is_partial=is_partial or more_runs or more_tasks,
        )
        return Answer(summary, found.applied)

    def _states(self, kind: type[R], where: Where) -> tuple[Mapping[str, int], bool]:
        states: Counter[str] = Counter()
        for row in self.all_rows(kind, where):
            if states.total() == SUMMARY_ROWS_MAX:
                return dict(sorted(states.items())), True
            states[row.state] += 1
        return dict(sorted(states.items())), False

    def list_build_requests(
        self,
        *,
        states: Sequence[str] = (),
        partition: str | None = None,
        client_id: str | None = None,
        since_us: int | None = None,
        until_us: int | None = None,
        order: Order = "recent",
        cursor: str | None = None,
        limit: int = PAGE_ROWS,
    ) -> Listing[BuildRow]:
        """Return a page of build requests.

        Args:
            states: In one of these.
            partition: That asked for this partition. There is no index of it: one page looks at up
                to `LIST_SCAN_ROWS_MAX` builds, and may be short.
            client_id: That this client asked for.
            since_us: Whose last event was ingested at or after, microseconds since the epoch.
            until_us: Before.
            order: See `Order`.
            cursor: `next_cursor` of the page before.
            limit: Most rows, 1 to `PAGE_ROWS_MAX`.

        Raises:
            InvalidFilter: The cursor is one of another list.
            LimitExceeded: `limit` is over its bound.
        """
        where = Where(
            states=tuple(states),
            partition=partition,
            client_id=client_id,
            since_us=since_us,
            until_us=until_us,
        )
        return self.list_rows(BuildRow, where, order=order, cursor=cursor, limit=limit)

    # --- the whole

    def activity_summary(self, window_s: float = WINDOW_S) -> Answer[Activity]:
        """Return what goes on: counts by state, what runs, what failed lately, rates, lag.

        Takes a dozen looks at the tables, `ACTIVITY_ROWS_MAX` rows each at most, and about twenty
        single records of the log to find where the window begins.

        Args:
            window_s: How far back "lately" and the rates go, seconds.
        """
        now = self.clock()
        since = now - int(window_s * 1e6)
        counts = self.tables.counts()

        def latest(kind: type[R], where: Where) -> tuple[R, ...]:
            return self.tables.list_rows(kind, where, limit=ACTIVITY_ROWS_MAX).rows

        failed = Where(states=("failed",), since_us=since)
        status = self.tables.status()
        end = self.log.next_position()
        first = first_since(self.log, end, since)
        start = index_of(self.log, first)
        count = self.tables.count_since
        activity = Activity(
            counts=counts.value,
            running=latest(JobRunRow, Where(states=("running",))),
            builds=latest(BuildRow, Where(active=True)),
            failed_partitions=latest(PartitionRow, failed),
            failed_builds=latest(BuildRow, failed),
            failed_job_runs=latest(JobRunRow, failed),
            rates=Rates(
                window_s=window_s,
                events=end - first,
                partitions_available=count(PartitionRow.kind, "available", start),
                partitions_failed=count(PartitionRow.kind, "failed", start),
                builds_completed=count(BuildRow.kind, "completed", start),
                builds_failed=count(BuildRow.kind, "failed", start),
                job_runs_completed=count(JobRunRow.kind, "completed", start),
                job_runs_failed=count(JobRunRow.kind, "failed", start),
            ),
            lag=lag_of(self.log, status, now),
        )
        return Answer(activity, counts.applied)


def _has_ended(build: BuildRow) -> bool:
    return build.state in {"completed", "failed", "cancelled"}
