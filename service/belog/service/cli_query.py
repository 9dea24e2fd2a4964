"""Commands that ask more than what a row says, and that call off what goes on."""

from collections.abc import Mapping
from typing import Annotated, Final
from uuid import UUID

import typer

from belog.query import AuditQuery
from belog.query.activity import WINDOW_S
from belog.query.answers import Activity, AuditEntry, JobMetrics
from belog.query.engine import DEPTH
from belog.query.log_events import QUERY_EVENTS
from belog.schemas.errors import InvalidInput
from belog.schemas.lifecycle import SubjectKind
from belog.schemas.limits import PAGE_EVENTS_MAX
from belog.service import options
from belog.service.cli_tables import job_app, partition_app
from belog.service.placing import placed
from belog.service.rendering import Json, micros, rfc3339, row_line, row_titles, struct_json
from belog.service.sources import Asking, Source
from belog.service.terminal import put, put_fields, put_json, put_table

__all__ = ["activity", "audit", "partition_app", "stats"]

TIMEOUT_S: Final = 60.0
"""Longest wait when nothing is said, seconds."""

RefArgument = Annotated[str, typer.Argument(metavar="REF")]


# --- partitions


@partition_app.command("request")
@placed
def partition_request(
    source: Source,
    ref: RefArgument,
    *,
    build: Annotated[
        str | None,
        typer.Option("--build", metavar="ID", help="The build that asks; a new one if not given."),
    ] = None,
    client: Annotated[
        list[str] | None,
        typer.Option("--client", help="Who is behind it; may be repeated on a log."),
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
    actor: options.ActorOption = None,
    instance: options.InstanceOption = "local",
    as_json: options.JsonOption = False,
) -> None:
    """Ask for a partition: it is available, delegated to a build at work, or yours to build.

    Example: belog partition request sales/2026-01-31 --build nightly --log sqlite:///demo.db

    Example: belog partition request sales/2026-01-31 --client reports --url http://localhost:8000
    """
    asking = Asking(
        ref=ref,
        build_id=build,
        clients=tuple(client or ()),
        delegation=delegation,
        timeout_s=timeout,
    )
    shown = struct_json(source.request(asking, actor=actor, instance=instance))
    if as_json:
        put_json(shown)
    else:
        put("  ".join(f"{value}" for value in shown.values()))


@partition_app.command("wait")
@placed
def partition_wait(
    source: Source,
    ref: RefArgument,
    states: Annotated[
        list[str] | None,
        typer.Argument(metavar="STATE…", help="One of these; available if not given."),
    ] = None,
    *,
    timeout: Annotated[float, typer.Option("--timeout", min=0, help="Seconds.")] = TIMEOUT_S,
    as_json: options.JsonOption = False,
) -> None:
    """Wait until a partition is in a state: exit code 3 if it is failed, 5 if time is over.

    Example: belog partition wait sales/2026-01-31 available --timeout 600 --log sqlite:///demo.db
    """
    found = source.wait(ref, states or ("available",), timeout)
    there = found.value
    if as_json:
        put_json({"ref": ref, "state": there.state, "index": there.index, "as_of": found.as_of})
    else:
        put(f"{ref} is {there.state} since index {there.index}")


@partition_app.command("explain")
@placed
def partition_explain(
    source: Source,
    ref: RefArgument,
    *,
    as_json: options.JsonOption = False,
) -> None:
    """Say why a partition is in its state: what led to it, the latest first.

    Example: belog partition explain sales/2026-01-31 --log sqlite:///demo.db
    """
    answer = source.explain(ref)
    found = answer.value
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
@placed
def partition_graph(
    source: Source,
    ref: RefArgument,
    *,
    depth: Annotated[int, typer.Option("--depth", min=0, help="Edges outwards.")] = DEPTH,
    as_json: options.JsonOption = False,
) -> None:
    """Show what a partition is made from and what is made from it, over all graphs.

    Example: belog partition graph sales/2026-01-31 --depth 2 --log sqlite:///demo.db
    """
    answer = source.graph(ref, depth)
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
@placed
def job_metrics(
    source: Source,
    label: Annotated[
        str | None, typer.Argument(metavar="LABEL", help="All labels if not given.")
    ] = None,
    *,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="Runs since this time only.")
    ] = None,
    as_json: options.JsonOption = False,
) -> None:
    """Show how often the newest runs of jobs succeed, and how long they take.

    Example: belog job metrics //jobs:load --log sqlite:///demo.db
    """
    found = source.metrics(label, None if since is None else micros(since))
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


@placed
def activity(
    source: Source,
    *,
    window: Annotated[
        float, typer.Option("--window", min=1, help="How far back to look, seconds.")
    ] = WINDOW_S,
    as_json: options.JsonOption = False,
) -> None:
    """Show what goes on: counts by state, what runs, what failed lately, rates, lag.

    Example: belog activity --window 86400 --log sqlite:///demo.db
    """
    answer = source.activity(window)
    if as_json:
        counts = {kind: _sorted(states) for kind, states in answer.value.counts.items()}
        put_json({**struct_json(answer.value), "counts": counts, "as_of": answer.as_of})
        return
    _put_activity(answer.value)


def _sorted(counts: Mapping[str, int]) -> dict[str, int]:
    """Return numbers by name in one order, wherever they come from."""
    return dict(sorted(counts.items()))


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


@placed
def audit(
    source: Source,
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
    found = source.audit(query, newest_first=not oldest_first, limit=limit)
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


@placed
def stats(
    source: Source,
    *,
    as_json: options.JsonOption = False,
) -> None:
    """Count what a log holds: events by type and kind, bytes, times, gaps.

    Example: belog stats --log sqlite:///demo.db
    """
    counted = source.statistics()
    shown = struct_json(counted)
    shown["by_type"] = _sorted(counted.by_type)
    shown["by_subject_kind"] = _sorted(counted.by_subject_kind)
    if as_json:
        put_json(shown)
        return
    put_fields(shown)
