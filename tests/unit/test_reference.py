"""The reference of events says what the classes say, and what it says of limits is so."""

import re
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import msgspec
import pytest

from belog.schemas.envelope import Event, StoredEvent
from belog.schemas.errors import BelogError
from belog.schemas.events import PAYLOADS, Manifest, ManifestInput, Payload, new_event
from belog.schemas.lifecycle import LIFECYCLE_1
from belog.schemas.payload import JsonValue
from belog.schemas.reference import EXAMPLE, event_section, field_table, page
from belog.service.cli_log import DraftEvent

PAGE = Path(__file__).parents[2] / "docs" / "events.md"

SAMPLES: dict[str, JsonValue] = {
    "text": "x",
    "partition ref": "x",
    "build request id": "x",
    "job run id": "x",
    "integer": 5,
    "microseconds since the epoch, UTC": 5,
    "[manifest](#manifest)": {},
    "[input](#input)": {"ref": "x"},
}
ABSENT: dict[str, JsonValue] = {"–": None, "empty list": [], "empty map": {}, "1": 1}


def rows(table: str) -> list[list[str]]:
    """The cells of the lines whose first cell is code."""
    lines = re.findall(r"^\| (`.*) \|$", table, re.MULTILINE)
    return [line.replace("`", "").split(" | ") for line in lines]


def section(title: str) -> str:
    return page().partition(f"\n## {title}")[2].partition("\n## ")[0]


def smallest(table: str) -> dict[str, JsonValue]:
    return {name: SAMPLES[words] for name, words, required, *_ in rows(table) if required == "yes"}


def made(event_type: str, body: dict[str, JsonValue]) -> bytes:
    event = new_event(event_type, "x", body, event_id=UUID(int=1), actor="x", occurred_at=0)
    return event.payload


def edges(words: str, limits: str) -> Iterator[tuple[JsonValue, JsonValue]]:
    """Pairs of a value that just fits and one that just does not, for each stated bound."""
    for number in re.findall(r"^from (-?\d+)$", limits):
        yield int(number), int(number) - 1
    texts: list[tuple[JsonValue, JsonValue]] = []
    if size := re.search(r"([\d,]+) bytes$", limits):
        most = int(size[1].replace(",", ""))
        texts.append(("x" * most, "x" * (most + 1)))
    if re.search(r"1–[\d,]+ bytes$", limits):
        texts.append(("x", ""))
    count = re.search(r"^≤ ([\d,]+) (?:items|entries)", limits)
    if count is None:
        yield from texts
        return
    number = int(count[1].replace(",", ""))
    if words.startswith("map"):
        yield {str(n): "x" for n in range(number)}, {str(n): "x" for n in range(number + 1)}
        for fits, over in texts:
            yield {"k": fits}, {"k": over}
        return
    one = SAMPLES[words.removeprefix("list of ").removesuffix("s")]
    yield [one] * number, [one] * (number + 1)
    for fits, over in texts:
        yield [fits], [over]


def test_page_is_made_from_the_classes() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), (
        "python -m belog.schemas.reference > docs/events.md"
    )


def test_every_event_and_every_field_is_listed_once() -> None:
    assert re.findall(r"^#### `(\S+)`$", page(), re.MULTILINE) == [
        row.event_type
        for kind in ("build", "partition", "job_run", "system")
        for row in LIFECYCLE_1.machines[kind]
    ]
    common = set(Payload.__struct_fields__)
    for event_type, cls in PAYLOADS.items():
        names = [name for name, *_ in rows(event_section(event_type)) if name != event_type]
        assert sorted(names) == sorted(set(cls.__struct_fields__) - common), event_type
        assert event_section(event_type) in page()
    for other in (Payload, Manifest, ManifestInput):
        assert field_table(other) in page()


@pytest.mark.parametrize("event_type", sorted(PAYLOADS))
def test_what_is_said_of_the_fields_of_an_event_is_so(event_type: str) -> None:
    table = field_table(PAYLOADS[event_type])
    base = smallest(table)
    plain = made(event_type, base)
    for name, words, required, default, limits, _ in rows(table):
        if required == "yes":
            with pytest.raises(BelogError, match=name):
                made(event_type, {key: value for key, value in base.items() if key != name})
        else:
            assert made(event_type, {**base, name: ABSENT[default]}) == plain, name
        for fits, over in edges(words, limits):
            made(event_type, {**base, name: fits})
            with pytest.raises(BelogError, match=name):
                made(event_type, {**base, name: over})


@pytest.mark.parametrize("cls", [Manifest, ManifestInput])
def test_what_is_said_of_a_manifest_is_so(cls: type[msgspec.Struct]) -> None:
    def written(part: dict[str, JsonValue]) -> bytes:
        manifest: JsonValue = part if cls is Manifest else {"inputs": [part]}
        return made("v1.partition.observed", {"manifest": manifest})

    table = field_table(cls)
    base = smallest(table)
    plain = written(base)
    for name, words, required, default, limits, _ in rows(table):
        if required == "yes":
            with pytest.raises(BelogError, match=name):
                written({key: value for key, value in base.items() if key != name})
        else:
            assert written({**base, name: ABSENT[default]}) == plain, name
        for fits, over in edges(words, limits):
            written({**base, name: fits})
            with pytest.raises(BelogError, match=name):
                written({**base, name: over})


def test_envelope_lists_what_an_event_holds() -> None:
    stored = [name for name in StoredEvent.__struct_fields__ if name != "event"]
    listed = rows(section("Envelope"))
    assert [name for name, *_ in listed] == [*Event.__struct_fields__, *stored]
    assert [name for name, _, by, *_ in listed if by == "log"] == stored


def test_json_lines_are_described_as_they_are_read() -> None:
    fields = msgspec.structs.fields(DraftEvent)
    listed = [(name, required == "yes") for name, _, required, *_ in rows(section("JSON lines"))]
    assert sorted(listed) == sorted((field.encode_name, field.required) for field in fields)
    lines = [msgspec.json.decode(line, type=dict[str, object]) for line in EXAMPLE.splitlines()]
    assert {key for line in lines for key in line} == {name for name, _ in listed}


def test_a_type_without_words_is_not_passed_over() -> None:
    class Odd(Payload, frozen=True, kw_only=True):
        message: str | None = None
        reason: bool = False

    with pytest.raises(TypeError, match="no words"):
        field_table(Odd)
