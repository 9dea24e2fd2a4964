"""The routes about the log and the service as such: status, statistics, activity, audit, health."""

from collections.abc import Mapping
from typing import Final

from belog.query.activity import WINDOW_S
from belog.query.answers import Activity, AuditEntry
from belog.query.log_events import QUERY_EVENTS
from belog.query.log_queries import AuditQuery
from belog.schemas.wire_json import to_json, uuid_text
from belog.service.http_api.answers import Answer, json_answer
from belog.service.http_api.call import Call
from belog.service.http_api.events import limit_of
from belog.service.http_api.rows import (
    Fields,
    build_fields,
    count_fields,
    job_run_fields,
    partition_fields,
    viewed,
    with_numbers,
)
from belog.service.instance import Instance, Readiness

__all__ = [
    "audit",
    "get_activity",
    "get_health",
    "get_readiness",
    "get_statistics",
    "get_status",
]

_NO_STORE: Final = ((b"cache-control", b"no-store"),)


async def get_health(call: Call) -> Answer:
    """Answer `GET /healthz`."""
    del call
    return Answer(to_json({"ok": True, "reasons": []}), headers=_NO_STORE)


async def get_readiness(call: Call) -> Answer:
    """Answer `GET /readyz`."""
    ready = await call.instance.calls.run(call.instance.readiness)
    reasons = list(ready.reasons)
    if reasons and not call.grant.actor:
        # They name servers and files, which is nothing for those without a token.
        reasons = ["send a token to learn why"]
    plain = {"ok": ready.is_ready, "reasons": reasons}
    status = 200 if ready.is_ready else 503
    return Answer(to_json(plain), max(ready.applied, 0), status, headers=_NO_STORE)


async def get_status(call: Call) -> Answer:
    """Answer `GET /status`."""
    await call.reach()
    return await call.instance.calls.run(_status, call.instance)


def _status(instance: Instance) -> Answer:
    end = instance.end()
    ready: Readiness = instance.readiness()
    producer = instance.producer
    return json_answer(
        {
            "next_idx": str(end.next_idx),
            "root": end.root,
            "log_id": str(end.log_id),
            "instance": instance.identity.instance,
            "applied": str(ready.applied),
            "lag_records": str(ready.lag_records),
            "is_replica": instance.identity.is_replica,
            "lifecycle_version": 0 if producer is None else producer.lifecycle.version,
            "next_position": str(max(ready.next_position, end.next_idx)),
            "applied_created_at": str(instance.queries.tables.status().created_at),
        },
        end.next_idx,
    )


async def get_statistics(call: Call) -> Answer:
    """Answer `GET /statistics`."""
    await call.reach()
    log = call.instance.log
    found = await call.instance.calls.run(log.statistics)
    as_of = 0 if found.last_index is None else found.last_index + 1
    fields: Fields = {
        name: str(getattr(found, name))
        for name in ("events", "bytes", "void", "duplicates", "tombstones", "gaps")
    }
    fields["by_type"] = count_fields(found.by_type)
    fields["by_subject_kind"] = count_fields(found.by_subject_kind)
    fields["as_of_index"] = str(as_of)
    with_numbers(fields, found, "first_index", "last_index", "first_created_at", "last_created_at")
    return json_answer(fields, as_of)


# --- activity


async def get_activity(call: Call) -> Answer:
    """Answer `GET /activity`."""
    await call.reach()
    window_s: float = call.query.get("window_s", WINDOW_S)
    found = await call.instance.calls.run(call.instance.queries.activity_summary, window_s)
    return json_answer(_activity(found.value, found.as_of, call.query.get("view")), found.as_of)


def _activity(activity: Activity, as_of: int, view: str | None) -> Fields:
    partition, build = viewed(partition_fields, view), viewed(build_fields, view)
    job_run = viewed(job_run_fields, view)
    rates, counts = activity.rates, activity.counts
    by_kind: Mapping[str, Fields] = {
        kind: {"by_state": count_fields(states)} for kind, states in counts.items()
    }
    rate_names = [name for name in rates.__struct_fields__ if name != "window_s"]
    return {
        "counts": by_kind,
        "running": [job_run(row) for row in activity.running],
        "builds": [build(row) for row in activity.builds],
        "failed_partitions": [partition(row) for row in activity.failed_partitions],
        "failed_builds": [build(row) for row in activity.failed_builds],
        "failed_job_runs": [job_run(row) for row in activity.failed_job_runs],
        "rates": {
            "window_s": rates.window_s,
            **{name: str(getattr(rates, name)) for name in rate_names},
        },
        "lag": {"records": str(activity.lag.records), "seconds": activity.lag.seconds},
        "as_of_index": str(as_of),
    }


# --- audit


async def audit(call: Call) -> Answer:
    """Answer `GET /audit`."""
    await call.reach()
    query = call.query
    asked = AuditQuery(
        subject_kind=query.get("subject_kind"),
        subject_id=query.get("subject_id"),
        actors=tuple(query.get("actor", ())),
        event_types=tuple(query.get("event_type", ())),
        created_from=query.get("created_from"),
        created_to=query.get("created_to"),
    )
    newest_first = query.get("order", "descending") == "descending"
    limit = limit_of(call, QUERY_EVENTS)
    offset: int = query.get("offset", 0)
    events = call.instance.queries.events
    found = await call.instance.calls.run(
        events.audit, asked, newest_first=newest_first, offset=offset, limit=limit
    )
    entries = [_entry(entry) for entry in found.value]
    return json_answer({"entries": entries, "as_of_index": str(found.as_of)}, found.as_of)


def _entry(entry: AuditEntry) -> Fields:
    fields: Fields = {
        "at": str(entry.at),
        "actor": entry.actor,
        "event_type": entry.event_type,
        "subject_kind": entry.subject_kind,
        "subject_id": entry.subject_id,
        "event_id": uuid_text(entry.event_id),
        "result": entry.result,
        "reason": entry.reason or "",
    }
    return with_numbers(fields, entry, "index")
