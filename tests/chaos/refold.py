"""What the tables must hold, made from the accepted events by a plain second fold.

Written from the documentation of the rows, sharing no code with them: rows are maps, kind → id →
fields. What is absent, empty or zero is left out on both sides of a comparison (`plain`).
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from tests.chaos.rules import UNDER_WAY, Accepted

__all__ = ["Rows", "counts_of", "indexes_of", "plain", "refold"]

Rows = dict[str, dict[str, dict[str, Any]]]


def plain(value: object) -> Any:  # noqa: ANN401 - JSON of any shape
    """A value without what is absent, empty or zero."""
    if isinstance(value, Mapping):
        items = {k: plain(v) for k, v in value.items()}
        return {k: v for k, v in items.items() if v not in (None, [], {}, 0, "")}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def refold(accepted: Iterable[Accepted]) -> Rows:
    """Return all rows."""
    rows: Rows = {"partition": {}, "build": {}, "job_run": {}, "task": {}, "system": {}}
    for item in accepted:
        kind = item.event.subject_kind
        if not item.event.event_type.startswith({"job_run": "v1.job."}.get(kind, f"v1.{kind}.")):
            continue
        _FOLDS[kind](rows, item, item.event.body(), item.event.event_type.rpartition(".")[2])
    return rows


def counts_of(rows: Rows) -> dict[str, int]:
    """How many rows there are of each kind and state, as `kind:state`."""
    counts: dict[str, int] = {}
    for kind, table in rows.items():
        for row in table.values():
            key = f"{kind}:{row['state']}"
            counts[key] = counts.get(key, 0) + 1
    return counts


def indexes_of(rows: Rows) -> dict[tuple[str, str], dict[str, int]]:
    """Some of the secondary indexes: (kind, name) → row id → index of its last event."""
    found: dict[tuple[str, str], dict[str, int]] = {}
    for kind, table in rows.items():
        for row_id, row in table.items():
            for name in ("all", f"state:{row['state']}"):
                found.setdefault((kind, name), {})[row_id] = row["index"]
    return found


def _touch(table: dict[str, dict[str, Any]], row_id: str, item: Accepted) -> dict[str, Any]:
    row = table.setdefault(row_id, {"first_seen": item.index, "version": 0})
    row["state"], row["index"], row["updated_at"] = item.after, item.index, item.created_at
    row["version"] += 1
    row["message"] = item.event.body().get("message")
    return row


def _count(rows: Rows, build: object, name: str) -> None:
    row = rows["build"].get(str(build))
    if row is not None:
        row["counts"][name] = row["counts"].get(name, 0) + 1
        row["version"] += 1


def _take(row: dict[str, Any], body: Mapping[str, Any], *names: str) -> None:
    for name in names:
        row[name] = body.get(name)


def _build(rows: Rows, item: Accepted, body: Mapping[str, Any], name: str) -> None:
    row = _touch(rows["build"], item.event.subject_id, item)
    row["build_id"] = item.event.subject_id
    row.setdefault("counts", {})
    if name == "received":
        _take(row, body, "client_id", "comment", "requested_partitions")
    if name == "analysis_completed":
        _take(row, body, "task_count", "partition_count")
    if name in {"received", "planning", "analysis_completed", "executing"}:
        row[f"{name}_at"] = item.created_at
    else:
        row["ended_at"], row["reason"] = item.created_at, body.get("reason")


def _job_run(rows: Rows, item: Accepted, body: Mapping[str, Any], name: str) -> None:
    run_id = item.event.subject_id
    is_new = run_id not in rows["job_run"]
    row = _touch(rows["job_run"], run_id, item)
    row["job_run_id"] = run_id
    if name == "scheduled" or (name == "skipped" and is_new):
        _take(row, body, "task_id", "job_label", "inputs", "outputs")
        row["build_id"] = body.get("build_request_id")
        attempt = body.get("attempt", 1)
        row["attempt"] = None if attempt == 1 else attempt  # the first is not said
    if name == "skipped":
        row["available_from_build"] = body.get("available_from_build")
    if name == "running":
        row["heartbeats"] = row.get("heartbeats", 0) + ("started_at" in row)
        row.setdefault("started_at", item.created_at)
        row["heartbeat_at"] = item.created_at
        row["worker"] = body.get("worker") or row.get("worker")
    elif name != "scheduled":
        row["ended_at"] = item.created_at
        _take(row, body, "reason", "exit_code")
    _task(rows, row, item, is_new=is_new)
    if is_new and row.get("build_id"):
        _count(rows, row["build_id"], "job_runs")


def _task(rows: Rows, run: Mapping[str, Any], item: Accepted, *, is_new: bool) -> None:
    build, task_id = run.get("build_id"), run.get("task_id")
    if not build or not task_id:
        return
    key = f"{build.replace('%', '%25').replace('/', '%2F')}/{task_id}"
    task = rows["task"].get(key)
    if task is not None and not is_new and task["runs"][-1] != run["job_run_id"]:
        return  # a newer run speaks for it
    task = _touch(rows["task"], key, item)
    del task["message"]
    task["build_id"], task["task_id"] = build, task_id
    if is_new:
        for name in ("job_label", "outputs", "inputs"):
            task[name] = run.get(name) or task.get(name)
        task["runs"] = [*task.get("runs", []), run["job_run_id"]][-100:]
        task["run_count"] = task.get("run_count", 0) + 1


def _partition(rows: Rows, item: Accepted, body: Mapping[str, Any], name: str) -> None:
    row = _touch(rows["partition"], item.event.subject_id, item)
    row["ref"] = item.event.subject_id
    build, run = body.get("build_request_id"), body.get("job_run_id")
    attempt: dict[str, Any] = row.get("attempt") or {}
    if name == "requested":
        _requested(rows, row, item, body)
    elif name == "joined":
        if build != attempt["build_id"]:
            attempt["joined_builds"] = _merged(attempt.get("joined_builds", []), [str(build)])
            _count(rows, build, "joined")
        attempt["requesting_clients"] = _merged(
            attempt.get("requesting_clients", []), body.get("requesting_clients", [])
        )
    elif name == "scheduled":
        _take(attempt, body, "job_run_id", "task_id", "job_label", "upstream_deps")
    elif name == "delegated":
        _take(attempt, body, "delegated_to_log", "delegated_to_build")
        _count(rows, build, "delegated")
    elif name in {"building", "available", "failed"}:
        attempt["job_run_id"] = run or attempt.get("job_run_id")
        if name == "failed":
            attempt["failure_reason"] = body.get("reason")
        if name != "building":
            _count(rows, build, name)
    _data(row, item, body, name)


def _merged(known: list[str], more: Iterable[str]) -> list[str]:
    return list(dict.fromkeys([*known, *more]))


def _requested(rows: Rows, row: dict[str, Any], item: Accepted, body: Mapping[str, Any]) -> None:
    clients = body.get("requesting_clients", [])
    if item.before in UNDER_WAY:
        # The owner gives the step back: who waits goes on waiting, the job run is off.
        old = row["attempt"]
        kept = ("build_id", "requested_index", "requested_at", "joined_builds")
        row["attempt"] = {k: old[k] for k in kept if k in old}
        row["attempt"]["requesting_clients"] = _merged(old.get("requesting_clients", []), clients)
        return
    row["attempt"] = {
        "build_id": item.owner,
        "requested_index": item.index,
        "requested_at": item.created_at,
        "requesting_clients": _merged([], clients),
    }
    _count(rows, body.get("build_request_id"), "requested")


def _data(row: dict[str, Any], item: Accepted, body: Mapping[str, Any], name: str) -> None:
    manifest = body.get("manifest")
    if name in {"available", "observed"}:
        attempt = row.get("attempt") or {}
        data: dict[str, Any] = {"index": item.index, "at": item.created_at}
        if name == "available":
            data |= {"build_id": item.owner}
            data |= {n: attempt.get(n) for n in ("job_run_id", "job_label", "upstream_deps")}
        else:
            _take(data, body, "source", "upstream_deps")
        data["manifest"] = None if manifest is None else json.dumps(manifest)
        row["available"] = data
        return
    data = row.get("available") or {}
    if name == "stale":
        data["stale_index"] = item.index
        _take(data, body, "reason", "cause_partition")
    elif name == "removed" and data and "removed_index" not in data:
        data["removed_index"], data["reason"] = item.index, body.get("reason")


def _system(rows: Rows, item: Accepted, body: Mapping[str, Any], name: str) -> None:
    row = _touch(rows["system"], item.event.subject_id, item)
    row["log_id"] = item.event.subject_id
    if name == "log_created":
        _take(row, body, "instance", "lifecycle_version")
    elif name == "snapshot_taken":
        row["snapshot_count"] = row.get("snapshot_count", 0) + 1
        row["snapshot_index"], row["snapshot_location"] = body.get("index"), body.get("location")
        row["snapshot_at"] = item.created_at
    elif name == "vacuumed":
        row["vacuum_horizon"], row["vacuum_snapshot"] = body.get("horizon"), body.get("snapshot")
        row["removed_count"] = row.get("removed_count", 0) + (body.get("removed_count") or 0)


_FOLDS = {"partition": _partition, "build": _build, "job_run": _job_run, "system": _system}
