"""Byte vectors of the format: what they are made of, and how they are made anew on purpose.

`python -m tests.golden` writes `tests/data/golden/*.json`. Do that only with a change of the
format that is meant and said in the changelog: a log that exists has the old bytes.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

from belog.schemas.envelope import Event, encode_event
from belog.schemas.events import new_event
from belog.schemas.merkle import MerkleRange
from belog.schemas.payload import JsonValue
from belog.schemas.replica import ReplicaRecord, encode_replica

DATA = Path(__file__).parent / "data" / "golden"
LOG_ID = UUID("b2c3d4e5-0001-4abc-8def-000000000001")
T0 = 1_750_000_000_123_456

MANIFEST: dict[str, JsonValue] = {
    "outputs": ["data://g/out"],
    "inputs": [{"ref": "data://g/in", "index": 300}, {"ref": "data://g/ünï"}],
    "start_time": T0 - 60_000_000,
    "end_time": T0,
    "task_id": "task-1",
    "uri": "s3://bucket/key",
    "size_bytes": 2**40,
    "row_count": 0,
    "content_digest": "sha256:00",
    "metadata": {"b": "2", "a": "1", "aa": ""},
}
RUN: dict[str, JsonValue] = {
    "build_request_id": "build-1",
    "task_id": "task-1",
    "job_label": "//graph:job",
    "outputs": ["data://g/out"],
    "inputs": ["data://g/in"],
    "attempt": 2,
}
SPECS: tuple[tuple[str, str, Mapping[str, JsonValue], Mapping[str, Any]], ...] = (
    (
        "v1.system.log_created",
        str(LOG_ID),
        {"log_id": str(LOG_ID), "instance": "golden", "lifecycle_version": 1},
        {},
    ),
    (
        "v1.build.received",
        "build-1",
        {"requested_partitions": ["data://g/out"], "client_id": "cli", "comment": "nightly"},
        {},
    ),
    ("v1.build.planning", "build-1", {"message": "für Menschen"}, {"expected": 1}),
    (
        "v1.build.analysis_completed",
        "build-1",
        {"task_count": 65_536, "partition_count": 24},
        {"caused_by": UUID(int=3)},
    ),
    ("v1.job.scheduled", "run-1", RUN, {"expected": -1}),
    ("v1.job.skipped", "run-1", {**RUN, "reason": "there", "available_from_build": "b0"}, {}),
    ("v1.job.failed", "run-2", {"reason": "x" * 300, "exit_code": -9}, {"occurred_at": -1}),
    (
        "v1.partition.requested",
        "data://g/ünï/" + "o" * 70,
        {"build_request_id": "build-1", "requesting_clients": ["a", "b"]},
        {"expected": 70_000, "caused_by": UUID(int=2**128 - 1)},
    ),
    (
        "v1.partition.delegated",
        "data://g/far",
        {"build_request_id": "b", "delegated_to_log": str(LOG_ID), "delegated_to_build": "b9"},
        {},
    ),
    (
        "v1.partition.available",
        "data://g/out",
        {"build_request_id": "build-1", "job_run_id": "run-1", "manifest": MANIFEST},
        {},
    ),
    (
        "v1.partition.observed",
        "data://g/in",
        {"manifest": {}, "source": "git", "upstream_deps": ["data://g/raw"]},
        {"occurred_at": 2**63 - 1},
    ),
    (
        "v2.partition.weighed",
        "data://g/out",
        {
            "floats": [0.0, -0.0, 1.5, 65_504.0, 100_000.0, 0.1, 1e300, 5e-324],
            "infinite": [float("inf"), float("-inf"), float("nan")],
            "integers": [0, 23, 24, 255, 256, 65_536, 2**32, 2**63 - 1, -1, -24, -25, -(2**63)],
            "others": [None, True, False, b"", b"\x00\xff", {"z": 1, "y": {}, "aa": []}],
        },
        {"actor": "über"},
    ),
)


def events() -> Iterator[Event]:
    for n, (event_type, subject_id, body, changes) in enumerate(SPECS):
        given: dict[str, Any] = {
            "event_id": UUID(int=n + 1),
            "actor": "golden",
            "occurred_at": T0 + n,
            **changes,
        }
        yield new_event(event_type, subject_id, body, **given)


def vectors() -> Iterator[tuple[str, dict[str, Any]]]:
    """File names with what they hold; the indices leave holes, as those of a topic do."""
    tree = MerkleRange()
    previous = -1
    for n, event in enumerate(events()):
        index = n * 37
        envelope = encode_event(event)
        tree.add(envelope)
        record = ReplicaRecord(LOG_ID.bytes, index, previous, T0 + n * 1_000_000, envelope)
        previous = index
        yield (
            f"{n:02}-{event.event_type}.json",
            {
                "event_type": event.event_type,
                "subject": event.subject,
                "payload": event.payload.hex(),
                "payload_digest": event.payload_digest.hex(),
                "envelope": envelope.hex(),
                "origin_index": index,
                "replica_record": encode_replica(record).hex(),
                "merkle_root_up_to_here": tree.root().hex(),
            },
        )


def text_of(vector: Mapping[str, Any]) -> str:
    return json.dumps(vector, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    DATA.mkdir(parents=True, exist_ok=True)
    for name, vector in vectors():
        (DATA / name).write_text(text_of(vector), encoding="utf-8")
