"""The bytes of the format do not change by accident."""

import json
from typing import Any

import pytest

from belog.schemas.envelope import decode_event, encode_event
from belog.schemas.events import PAYLOADS
from belog.schemas.payload import decode_payload, digest, encode_payload
from belog.schemas.replica import decode_replica, encode_replica
from tests.golden import DATA, SPECS, events, text_of, vectors

VECTORS = dict(vectors())


def test_committed_vectors_are_those_of_the_code() -> None:
    committed = {path.name: path.read_text(encoding="utf-8") for path in DATA.glob("*.json")}
    assert committed == {name: text_of(vector) for name, vector in VECTORS.items()}, (
        "the format changed; if that is meant: python -m tests.golden"
    )


@pytest.mark.parametrize("path", sorted(DATA.glob("*.json")), ids=lambda path: path.stem)
def test_committed_bytes_are_read_and_written_again(path: Any) -> None:  # noqa: ANN401 - a Path
    vector = json.loads(path.read_text(encoding="utf-8"))
    envelope = bytes.fromhex(vector["envelope"])
    replica = bytes.fromhex(vector["replica_record"])
    event = decode_event(envelope)
    assert event == list(events())[int(path.name[:2])]
    assert encode_event(event) == envelope
    assert event.payload.hex() == vector["payload"]
    assert encode_payload(decode_payload(event.payload)) == event.payload
    assert digest(event.payload).hex() == vector["payload_digest"]
    assert encode_replica(decode_replica(replica)) == replica
    assert decode_replica(replica).envelope == envelope


def test_vectors_cover_every_field() -> None:
    bodies = [body for _, _, body, _ in SPECS]
    used = {name for body in bodies for name in body}
    manifests = [m for body in bodies if isinstance(m := body.get("manifest"), dict)]
    used |= {name for manifest in manifests for name in manifest}
    system = {"index", "location", "horizon", "removed_count", "snapshot"}
    known = {n for cls in PAYLOADS.values() for n in cls.__struct_fields__}
    # The rest are texts like `reason`, in types that hold nothing of another kind.
    assert known - used - system == {"worker", "cause_partition"}
    assert {name for *_, changes in SPECS for name in changes} == {
        "expected",
        "caused_by",
        "occurred_at",
        "actor",
    }
