"""docs/changes.md shows the schemas that are written."""

import io
import json
import re
from pathlib import Path

import fastavro
import pytest

from belog.processors.rows import Attempt, BuildRow, PartitionRow
from belog.schemas.avro_structs import StructCodec
from belog.schemas.envelope import parse_avro_schema
from belog.schemas.errors import Corrupt
from belog.schemas.limits import EVENT_BYTES_MAX
from belog.sink.changes import BuildChange, PartitionChange, encoded

PAGE = Path(__file__).parents[2] / "docs" / "changes.md"
KINDS = (PartitionChange, BuildChange)


def test_the_page_shows_the_schemas() -> None:
    shown = re.findall(r"^```json\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert [json.loads(block) for block in shown] == [StructCodec(kind).schema for kind in KINDS]


def change(refs: int) -> BuildChange:
    row = BuildRow("b", "received", 1, 2, 0, 1, requested_partitions=("data://x" * 10,) * refs)
    return BuildChange(
        op="update",
        log_id="l",
        index=1,
        created_at=2,
        event_id=b"\x01" * 16,
        event_type="v1.build.planning",
        before=row,
        after=row,
    )


def test_a_reader_needs_nothing_but_the_schema() -> None:
    attempt = Attempt("b", 1, 2, requesting_clients=("é",))
    row = PartitionRow("data://x", "requested", 1, 2, 1, 1, attempt=attempt)
    value = PartitionChange(
        op="create",
        log_id="l",
        index=1,
        created_at=2,
        event_id=b"\x00\xff",
        event_type="v1.partition.requested",
        after=row,
    )
    data = StructCodec(PartitionChange).encode(value)
    shown = re.findall(r"^```json\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    schema = fastavro.parse_schema(json.loads(shown[0]))
    read = fastavro.schemaless_reader(io.BytesIO(data[10:]), schema, None)
    assert isinstance(read, dict)
    assert read["after"]["attempt"]["requesting_clients"] == ["é"]
    assert read["event_id"] == b"\x00\xff"
    assert read["after"]["available"] is None


def test_a_change_too_large_for_a_topic_leaves_out_what_was_before() -> None:
    key, value = encoded(change(8_000))
    assert key == b"b"
    assert len(value) <= EVENT_BYTES_MAX
    read = StructCodec(BuildChange).decode(value)
    assert read["before"] is None
    assert read["before_left_out"]
    assert not StructCodec(BuildChange).decode(encoded(change(10))[1])["before_left_out"]


def test_the_header_is_the_one_of_every_other_avro_record_here() -> None:
    codec = StructCodec(BuildChange)
    header = parse_avro_schema(json.dumps(codec.schema), 1).header
    assert header[:2] == b"\xc3\x01"
    assert codec.encode(change(1)).startswith(header)


def test_foreign_bytes_are_refused() -> None:
    data = StructCodec(BuildChange).encode(change(1))
    for wrong in (
        b"",
        data[:-1],
        b"\xc3\x01" + data,
        StructCodec(PartitionRow).encode(PartitionRow("a", "b", 1, 1, 1, 1)),
    ):
        with pytest.raises(Corrupt):
            StructCodec(BuildChange).decode(wrong)
