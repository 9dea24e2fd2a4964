"""The checker on histories made by hand: each rule is broken by what breaks it, and no other."""

import io
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import cbor2
import fastavro
import pytest
from blake3 import blake3

from tests.chaos.checking import Case, check
from tests.chaos.history import Call, History
from tests.chaos.refold import plain, refold
from tests.chaos.rules import ENVELOPE_HEADER, PARSED, Fields, Raw, judge_all
from tests.chaos.views import check_memory_tables, check_readers

T0 = 1_750_000_000_000_000
LOG_ID = "3f0c6f3e-6d0a-4b57-9d3a-0f6f2f4be001"


def event(name: str, subject: str, n: int, **fields: object) -> Fields:
    kind = name.partition(".")[0]
    payload = cbor2.dumps(fields, canonical=True)
    digest = blake3(payload).digest()
    event_id = n.to_bytes(16, "big")
    return Fields(event_id, f"v1.{name}", kind, subject, "w", T0 + n, payload, digest, None, None)


CREATED = event("system.log_created", LOG_ID, 999, lifecycle_version=1)
REQUESTED = event("partition.requested", "p", 1, build_request_id="b")
SCHEDULED = event("partition.scheduled", "p", 2, build_request_id="b")
OBSERVED = event("partition.observed", "q", 3, source="s")
STRANGE = event("partition.scheduled", "p", 4, build_request_id="other")


def log_of(*events: Fields) -> list[Raw]:
    raws: list[Raw] = []
    for n, item in enumerate((CREATED, *events)):
        out = io.BytesIO()
        out.write(ENVELOPE_HEADER)
        fastavro.schemaless_writer(out, PARSED[ENVELOPE_HEADER], asdict(item))
        raws.append(Raw(n, T0 + n, out.getvalue()))
    return raws


def receipt(index: int, item: Fields, *, dup: bool = False) -> dict[str, Any]:
    return {"r": index, "at": T0 + index, "dup": dup, "id": item.event_id.hex()}


def refused(
    code: str, at: int, state: str, last: int, owner: str | None, *allowed: str
) -> dict[str, Any]:
    names = [f"v1.partition.{name}" for name in allowed]
    return {"e": code, "at": at, "state": state, "last": last, "owner": owner, "allowed": names}


def call(start: int, *told: tuple[Fields, Mapping[str, Any] | None], op: str = "append") -> Call:
    items = [
        {k: v.hex() if isinstance(v, bytes) else v for k, v in asdict(item).items()}
        for item, _ in told
    ]
    answers = [dict(answer) for _, answer in told if answer is not None]
    known = len(answers) == len(items)
    return Call(
        f"w.000:{start}",
        "w",
        0,
        start,
        op,
        1,
        items,
        start,
        start + 5 if known else None,
        answers if known else None,
    )


def broken(records: list[Raw], *calls: Call, conditional: bool = True) -> set[str]:
    case = Case(History(calls=list(calls)), judge_all(records), is_conditional=conditional)
    return {contradiction.rule for contradiction in check(case)}


GOOD = (
    call(10, (REQUESTED, receipt(1, REQUESTED))),
    call(20, (SCHEDULED, receipt(2, SCHEDULED))),
    call(30, (OBSERVED, receipt(3, OBSERVED))),
)
LOG = log_of(REQUESTED, SCHEDULED, OBSERVED)
NOT_OWNER = refused(
    "not_owner", 2, "requested", 1, "b", "joined", "scheduled", "delegated", "failed"
)


def test_a_true_history_breaks_no_rule() -> None:
    repeated = call(40, (REQUESTED, receipt(1, REQUESTED, dup=True)))
    race = call(12, (STRANGE, NOT_OWNER))
    assert broken(LOG, *GOOD, repeated, race) == set()


def test_void_records_stand_on_kafka_only() -> None:
    records = log_of(REQUESTED, STRANGE, SCHEDULED)
    calls = (
        call(10, (REQUESTED, receipt(1, REQUESTED))),
        call(20, (STRANGE, None)),
        call(30, (SCHEDULED, receipt(3, SCHEDULED))),
    )
    assert broken(records, *calls, conditional=False) == set()
    assert broken(records, *calls) == {"record-without-effect"}


@pytest.mark.parametrize(
    ("rule", "records", "calls"),
    [
        ("acknowledged-lost", log_of(REQUESTED, SCHEDULED), GOOD),
        ("acknowledged-elsewhere", log_of(OBSERVED, REQUESTED, SCHEDULED), GOOD),
        ("phantom", LOG, GOOD[:2]),
        ("gap", [*LOG[:2], *LOG[3:]], (GOOD[0], GOOD[2])),
        ("doubled", LOG, (*GOOD, call(40, (OBSERVED, receipt(3, OBSERVED))))),
        ("false-duplicate", LOG, (*GOOD[:2], call(30, (OBSERVED, receipt(3, OBSERVED, dup=True))))),
        ("order-of-time", LOG, (GOOD[1], GOOD[2], call(28, (REQUESTED, receipt(1, REQUESTED))))),
        (
            "order-of-batch",
            LOG,
            (
                call(10, (SCHEDULED, receipt(2, SCHEDULED)), (REQUESTED, receipt(1, REQUESTED))),
                GOOD[2],
            ),
        ),
        (
            "half-batch",
            log_of(REQUESTED),
            (call(10, (REQUESTED, None), (SCHEDULED, None), op="atomic"),),
        ),
        (
            "written-untold",
            LOG,
            (*GOOD[:2], call(30, (OBSERVED, {"u": "unavailable", "message": ""}))),
        ),
        (
            "refused-untruly",
            LOG,
            (*GOOD, call(12, (STRANGE, refused("not_owner", 2, "requested", 1, "zz")))),
        ),
        (
            "refused-by-the-past",
            LOG,
            (
                *GOOD,
                call(50, (STRANGE, NOT_OWNER)),
            ),
        ),
        (
            "false-reuse",
            LOG,
            (*GOOD, call(40, (OBSERVED, refused("event_id_reused", 3, "", 3, None)))),
        ),
        (
            "receipt-time",
            LOG,
            (*GOOD[:2], call(30, (OBSERVED, receipt(3, OBSERVED) | {"at": T0 + 9}))),
        ),
    ],
)
def test_a_false_history_breaks_its_rule(
    rule: str, records: list[Raw], calls: tuple[Call, ...]
) -> None:
    assert rule in broken(records, *calls)


def page(since: int, next_idx: int, *indices: int, **fields: object) -> dict[str, Any]:
    rows = [[n, T0 + n, judge_all(LOG).accepted[n].event.event_id.hex()] for n in indices]
    base = {"since": since, "next": next_idx, "more": False, "full": False, "began": 100}
    return {**base, "rows": rows, "process": "reader-x", "where": "reader-x.000:1", **fields}


@pytest.mark.parametrize(
    ("rules", "pages"),
    [
        (set(), [page(0, 2, 0, 1, more=True), page(2, 4, 2, 3)]),
        (set(), [page(0, 4, 3, types=["v1.partition.observed"])]),
        ({"page"}, [page(0, 4, 0, 1, 3)]),
        ({"page"}, [page(0, 4, 0, 2, 1, 3)]),
        ({"page"}, [page(0, 4, 0, 1, 1, 2, 3)]),
        ({"cursor"}, [page(0, 2, 0, 1, more=True), page(3, 4, 3)]),
        ({"page-short"}, [page(0, 3, 0, 1, 2)]),
    ],
)
def test_what_readers_saw(rules: set[str], pages: list[dict[str, Any]]) -> None:
    history = History(calls=list(GOOD), pages=pages)
    case = Case(history, judge_all(LOG), is_conditional=True)
    assert {contradiction.rule for contradiction in check_readers(case)} == rules


def test_tables_that_miss_an_event() -> None:
    judged = judge_all(LOG)
    rows = refold(judged.accepted.values())
    counts = {"partition": {"scheduled": 1, "available": 1}, "system": {"open": 1}}
    told = {"applied": 4, "rows": {k: plain(v) for k, v in rows.items()}, "counts": counts}
    assert list(check_memory_tables(judged, told)) == []
    short = {**told, "rows": {k: plain(v) for k, v in refold([judged.accepted[0]]).items()}}
    assert {c.rule for c in check_memory_tables(judged, short)} == {"row-memory"}
    off = {**told, "counts": {"partition": {"scheduled": 2}}}
    assert {c.rule for c in check_memory_tables(judged, off)} == {"counts"}


def test_a_process_that_goes_on_after_the_log_lost_what_it_knew() -> None:
    later = event("partition.observed", "z", 8, source="s")
    records = log_of(REQUESTED, later)
    calls = [*GOOD, call(60, (later, receipt(2, later)))]
    case = Case(
        History(calls=calls),
        judge_all(records),
        is_conditional=True,
        allows=frozenset({"lost_tail"}),
        undecided_until=50,
    )
    assert "went-on" in {contradiction.rule for contradiction in check(case)}
