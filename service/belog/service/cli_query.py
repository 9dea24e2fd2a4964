"""Commands that ask more than what a row says, and that call off what goes on."""

from typing import Annotated, Final
from uuid import UUID

import typer

from belog.producers.coordination import (
    Available,
    Requested,
    request_partition,
    wait_until_made,
)
from belog.producers.ids import random_uuid
from belog.query import AuditQuery, Repositories
from belog.query.activity import WINDOW_S
from belog.query.answers import Activity, AuditEntry, JobMetrics
from belog.query.engine import DEPTH
from belog.query.log_events import QUERY_EVENTS
from belog.schemas.errors import Conflict, InvalidInput, NotFound, Unavailable
from belog.schemas.events import BuildReceived
from belog.schemas.lifecycle import SubjectKind
from belog.schemas.limits import PAGE_EVENTS_MAX
from belog.service import options
from belog.service.cli_tables import job_app, partition_app
from belog.service.opening import existing_log, writable_log
from belog.service.querying import open_queries, producer_of
from belog.service.rendering import Json, micros, rfc3339, row_line, row_titles, struct_json
from belog.service.terminal import put, put_fields, put_json, put_table

__all__ = ["activity", "audit", "partition_app", "stats"]

TIMEOUT_S: Final = 60.0
"""Longest wait when nothing is said, seconds."""

RefArgument = Annotated[str, typer.Argument(metavar="REF")]
ActorOption = Annotated[
    str, typer.Option("--actor", envvar="BELOG__PRODUCER__ACTOR", help="Who writes.")
]


# --- partitions


@partition_app.command("request")
def partition_request(
    ref: RefArgument,
    log: options.LogOption,
    *,
    build: Annotated[
        str | None,
        typer.Option("--build", metavar="ID", help="The build that asks; a new one if not given."),
    ] = None,
    client: Annotated[
        list[str] | None, typer.Option("--client", help="Who is behind it; may be repeated.")
    ] = None,
    delegation: Annotated[
        bool,
        typer.Option(
            "--delegation/--no-delegation", help="Whether another build may make it instead."
        ),
    ] = True,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0, help="Wait so many seconds until it was made.")
    ] = 0,
    actor: ActorOption = "cli",
    instance: options.InstanceOption = "local",
    snapshots: options.SnapshotsOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Ask for a partition: it is available, delegated to a build at work, or yours to build.

    Example: belog partition request sales/2026-01-31 --build nightly --log sqlite:///demo.db
    """
    build_id = build or str(UUID(bytes=random_uuid()))
    with (
        writable_log(log, instance) as opened,
        producer_of(opened, actor, snapshots) as producer,
    ):
        answer = request_partition(
            producer,
            ref,
            build_request_id=build_id,
            clients=client or (),
            allow_delegation=delegation,
        )
        if build is None and not isinstance(answer, Available):
            asked_by = client[0] if client else actor
            producer.append(BuildReceived(requested_partitions=[ref], client_id=asked_by), build_id)
        shown = _answer_json(answer)
        if timeout and not isinstance(answer, Available):
            state = wait_until_made(producer, ref, timeout_s=timeout)
            if state is None:
                msg = f"{ref!r} was not made in {timeout:g} s"
                raise Unavailable(msg, log=producer.log.name, subject=f"partition:{ref}")
            shown |= {"state": state.state, "index": state.index}
            if state.state != "available":
                raise _not_made(ref, state.state, state.index)
    if as_json:
        put_json(shown)
    else:
        put("  ".join(f"{value}" for value in shown.values()))


def _answer_json(answer: Requested) -> Json:
    shown: Json = {"answer": type(answer).__name__.lower(), "ref": answer.ref}
    if not isinstance(answer, Available):
        shown["build_request_id"] = answer.build_request_id
    return shown | {"index": answer.index}


def _not_made(ref: str, state: str, index: int) -> Conflict:
    return Conflict(
        f"{ref!r} is {state}",
        state=state,
        last_index=index,
        allowed=(),
        index=index,
        subject=f"partition:{ref}",
        hint="belog partition explain says why",
    )


@partition_app.command("wait")
def partition_wait(
    ref: RefArgument,
    log: options.LogOption,
    states: Annotated[
        list[str] | None,
        typer.Argument(metavar="STATE…", help="One of these; available if not given."),
    ] = None,
    *,
    tables: options.TablesOption = "memory:",
    timeout: Annotated[float, typer.Option("--timeout", min=0, help="Seconds.")] = TIMEOUT_S,
    snapshots: options.SnapshotsOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Wait until a partition is in a state: exit code 3 if an attempt fails, 5 if time is over.

    Example: belog partition wait sales/2026-01-31 available --timeout 600 --log sqlite:///demo.db
    """
    with open_queries(log, tables, snapshots) as queries:
        found = queries.wait_for_state(ref, states or ("available",), timeout_s=timeout)
    row = found.value
    if as_json:
        put_json({"ref": ref, "state": row.state, "index": row.index, "as_of": found.as_of})
    else:
        put(f"{ref} is {row.state} since index {row.index}")


@partition_app.command("explain")
def partition_explain(
    ref: RefArgument,
    log: options.LogOption,
    tables: options.TablesOption = "memory:",
    *,
    snapshots: options.SnapshotsOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Say why a partition is in its state: what led to it, the latest first.

    Example: belog partition explain sales/2026-01-31 --log sqlite:///demo.db
    """
    with open_queries(log, tables, snapshots) as queries:
        answer = queries.explain(ref)
    found = answer.value
    if found is None:
        msg = f"there is no partition {ref!r}"
        raise NotFound(msg, index=answer.as_of, hint="the tables are as of that index")
    if as_json:
        put_json({**struct_json(found), "as_of": answer.as_of})
        return
    put(f"{ref}: {found.summary}")
    for cause in found.causes:
        reason = f"  {cause.reason}" if cause.reason else ""
        put(
            f"{cause.index:>8}  {rfc3339(cause.at)[:19]}Z  {cause.link:<9}  {cause.event_type:<28}"
            f"  {cause.subject_id}  [{cause.actor}]{reason}"
        )


@partition_app.command("graph")
def partition_graph(
    ref: RefArgument,
    log: options.LogOption,
    tables: options.TablesOption = "memory:",
    *,
    depth: Annotated[int, typer.Option("--depth", min=0, help="Edges outwards.")] = DEPTH,
    snapshots: options.SnapshotsOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Show what a partition is made from and what is made from it, over all graphs.

    Example: belog partition graph sales/2026-01-31 --depth 2 --log sqlite:///demo.db
    """
    with open_queries(log, tables, snapshots) as queries:
        answer = queries.dependency_graph(ref, depth)
    graph = answer.value
    if as_json:
        put_json({"nodes": [], "edges": [], **struct_json(graph), "as_of": answer.as_of})
        return
    put_table(
        ("partition", "state", "label", "updated"),
        [
            (
                node.ref,
                node.status or "never seen",
                node.job_label or "",
                "" if node.last_updated is None else rfc3339(node.last_updated)[:19] + "Z",
            )
            for node in graph.nodes
        ],
    )
    for edge in graph.edges:
        put(f"{edge.source}  {edge.kind}  {edge.target}")


# --- what goes on


@job_app.command("metrics")
def job_metrics(
    log: options.LogOption,
    label: Annotated[
        str | None, typer.Argument(metavar="LABEL", help="All labels if not given.")
    ] = None,
    tables: options.TablesOption = "memory:",
    *,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="Runs since this time only.")
    ] = None,
    snapshots: options.SnapshotsOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Show how often the newest runs of jobs succeed, and how long they take.

    Example: belog job metrics //jobs:load --log sqlite:///demo.db
    """
    since_us = None if since is None else micros(since)
    with open_queries(log, tables, snapshots) as queries:
        jobs = Repositories(queries).jobs
        found = (
            jobs.metrics_of_all(since_us=since_us).value
            if label is None
            else (jobs.metrics(label, since_us=since_us).value,)
        )
    if as_json:
        for metrics in found:
            put_json(struct_json(metrics))
        return
    titles = ("label", "runs", "success", "p50", "p95", "latest")
    put_table(titles, [_metrics_line(metrics) for metrics in found])


def _metrics_line(metrics: JobMetrics) -> tuple[str, ...]:
    rate = "–" if metrics.success_rate is None else f"{metrics.success_rate:.1%}"
    return (
        metrics.job_label,
        f"{metrics.runs}{'+' if metrics.is_partial else ''}",
        rate,
        _seconds(metrics.duration_p50_us),
        _seconds(metrics.duration_p95_us),
        rfc3339(metrics.newest_at)[:19] + "Z",
    )


def _seconds(duration_us: int | None) -> str:
    return "–" if duration_us is None else f"{duration_us / 1e6:.3f} s"


def activity(
    log: options.LogOption,
    tables: options.TablesOption = "memory:",
    *,
    window: Annotated[
        float, typer.Option("--window", min=1, help="How far back to look, seconds.")
    ] = WINDOW_S,
    snapshots: options.SnapshotsOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Show what goes on: counts by state, what runs, what failed lately, rates, lag.

    Example: belog activity --window 86400 --log sqlite:///demo.db
    """
    with open_queries(log, tables, snapshots) as queries:
        answer = queries.activity_summary(window)
    if as_json:
        put_json({**struct_json(answer.value), "as_of": answer.as_of})
        return
    _put_activity(answer.value)


def _put_activity(found: Activity) -> None:
    for kind, states in found.counts.items():
        if states and kind != "system":
            by_state = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
            put(f"{kind.replace('_', ' ')}: {by_state}")
    rates = found.rates
    put(
        f"in {rates.window_s:g} s: {rates.events} events, partitions "
        f"{rates.partitions_available} made, {rates.partitions_failed} failed; "
        f"builds {rates.builds_completed} completed, {rates.builds_failed} "
        f"failed; job runs {rates.job_runs_completed} completed, "
        f"{rates.job_runs_failed} failed"
    )
    put(f"lag: {found.lag.records} records, {found.lag.seconds:.1f} s")
    for title, rows in (
        ("running", found.running),
        ("builds under way", found.builds),
        ("failed partitions", found.failed_partitions),
        ("failed builds", found.failed_builds),
        ("failed job runs", found.failed_job_runs),
    ):
        if rows:
            put(f"{title}:")
            put_table(row_titles[rows[0].kind], [row_line(row) for row in rows])


def audit(
    log: options.LogOption,
    tables: options.TablesOption = "memory:",
    *,
    partition: Annotated[str | None, typer.Option("--partition", metavar="REF")] = None,
    build: Annotated[str | None, typer.Option("--build", metavar="ID")] = None,
    job_run: Annotated[str | None, typer.Option("--job-run", metavar="ID")] = None,
    actor: options.ActorTerms = None,
    event_type: options.TypeTerms = None,
    created_from: options.FromTime = None,
    created_to: options.ToTime = None,
    oldest_first: Annotated[
        bool, typer.Option("--oldest-first", help="The first first, not the latest.")
    ] = False,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=PAGE_EVENTS_MAX, help="Most entries to show.")
    ] = QUERY_EVENTS,
    snapshots: options.SnapshotsOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Say who did what, when, with what result; the latest first.

    Example: belog audit --actor deploy --log sqlite:///demo.db
    """
    named: list[tuple[SubjectKind, str]] = []
    if partition is not None:
        named.append(("partition", partition))
    if build is not None:
        named.append(("build", build))
    if job_run is not None:
        named.append(("job_run", job_run))
    if len(named) > 1:
        msg = "name one of --partition, --build and --job-run"
        raise InvalidInput(msg)
    query = AuditQuery(
        subject_kind=named[0][0] if named else None,
        subject_id=named[0][1] if named else None,
        actors=tuple(actor or ()),
        event_types=tuple(event_type or ()),
        created_from=None if created_from is None else micros(created_from),
        created_to=None if created_to is None else micros(created_to),
    )
    with open_queries(log, tables, snapshots) as queries:
        found = queries.events.audit(query, newest_first=not oldest_first, limit=limit).value
    if as_json:
        for entry in found:
            put_json(_entry_json(entry))
        return
    put_table(
        ("time", "actor", "event", "subject", "result", "index"),
        [
            (
                rfc3339(entry.at),
                entry.actor,
                entry.event_type,
                entry.subject_id,
                entry.result,
                "" if entry.index is None else str(entry.index),
            )
            for entry in found
        ],
    )


def _entry_json(entry: AuditEntry) -> Json:
    return {**struct_json(entry), "event_id": str(UUID(bytes=entry.event_id))}


def stats(
    log: options.LogOption,
    *,
    snapshots: options.SnapshotsOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Count what a log holds: events by type and kind, bytes, times, gaps.

    Example: belog stats --log sqlite:///demo.db
    """
    with existing_log(log, snapshots) as opened:
        counted = opened.statistics()
    shown = struct_json(counted)
    if as_json:
        put_json(shown)
        return
    put_fields(shown)
