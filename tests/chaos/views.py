"""The other half of the checker: what readers saw, and whether tables and replicas are right."""

import json
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any, cast

import redis as client

from tests.chaos.checking import Case, Contradiction
from tests.chaos.refold import Rows, counts_of, indexes_of, plain, refold
from tests.chaos.rules import Accepted, Judged, Raw, decode_record, decode_replica_record

__all__ = [
    "check_memory_tables",
    "check_readers",
    "check_redis_tables",
    "check_replica",
    "redis_applied",
    "replica_end",
    "unfinished",
]

OMITTED_BYTES_MIN = 900_000
"""Smallest event that a replica may leave out, bytes."""

ANSWER_S = 5.0
"""How long Redis may take to answer, seconds."""


# --- readers


def check_readers(case: Case) -> Iterator[Contradiction]:
    """What was read is what the log holds there: in order, without holes or repetitions."""
    accepted = [case.judged.accepted[index] for index in sorted(case.judged.accepted)]
    cursors: dict[str, tuple[int, str]] = {}
    for page in case.history.pages:
        if page["began"] < case.undecided_until:
            continue
        told = f"{page['where']} {_shown(page)}"
        if "get" in page:
            yield from _got(case, page, told)
            continue
        if page["process"].startswith("reader"):
            cursor, line = cursors.get(page["process"], (0, "the beginning"))
            if page["since"] != cursor and case.undecided_until < 0:
                says = f"a reader went on at {page['since']}, its cursor was {cursor}"
                yield Contradiction("cursor", says, (line, told))
            cursors[page["process"]] = page["next"], told
        yield from _page(case, accepted, page, told)


def _shown(page: Mapping[str, Any]) -> str:
    if "get" in page:
        return f"get {page['get'][:12]}… → {page['index']}"
    indices = [row[0] for row in page["rows"]]
    shown = f"{indices[:3]}…{indices[-2:]}" if len(indices) > 6 else f"{indices}"
    of = f" of {len(page['types'])} types" if page.get("types") else ""
    more = ", more" if page["more"] else ""
    return f"page since {page['since']}{of} → {shown}, next {page['next']}{more}"


def _got(case: Case, page: Mapping[str, Any], told: str) -> Iterator[Contradiction]:
    held = case.judged.by_id.get(bytes.fromhex(page["get"]))
    if page["index"] is not None and page["index"] != held:
        says = f"an event was found at {page['index']}, it is at {held}"
        yield Contradiction("found-elsewhere", says, (told,))
    elif page["index"] is None and held is not None:
        attempts = case.by_id[bytes.fromhex(page["get"])]
        known = [a for a in attempts if a.index is not None and (a.call.end or 0) < page["began"]]
        if known:
            says = "an event was not found that had been acknowledged before"
            yield Contradiction("not-found", says, (told, str(known[0])))


def _page(
    case: Case, accepted: Sequence[Accepted], page: Mapping[str, Any], told: str
) -> Iterator[Contradiction]:
    types = set(page.get("types") or ())
    wanted: list[list[Any]] = [
        [item.index, item.created_at, item.event.event_id.hex()]
        for item in accepted[_place(accepted, page["since"]) : _place(accepted, page["next"])]
        if not types or item.event.event_type in types
    ]
    if wanted != page["rows"]:
        rows: list[list[Any]] = page["rows"]
        pairs = zip_longest(wanted, rows)
        in_log, in_page = next(pair for pair in pairs if pair[0] != pair[1])
        says = f"a page holds {in_page} where the log has {in_log} (index, time, id)"
        index = (in_log or in_page or [page["since"]])[0]
        yield Contradiction("page", says, (told, case.record(index)))
    if not page["more"] and not page["full"]:
        highest, by = case.acknowledged_before(page["began"])
        if by is not None and page["next"] <= highest:
            says = f"a page ended at {page['next']} as if nothing followed, {highest} was there"
            yield Contradiction("page-short", says, (told, str(by)))


def _place(accepted: Sequence[Accepted], index: int) -> int:
    return bisect_left(accepted, index, key=lambda item: item.index)


def unfinished(case: Case, names: Sequence[str], end: int) -> Iterator[Contradiction]:
    """Readers that did not come to the end."""
    for name in names:
        seen = [page["next"] for page in case.history.pages if page["process"] == name]
        if name not in case.history.done or (seen and max(seen) < end):
            says = f"{name} came to {max(seen, default=0)} of {end}"
            yield Contradiction("reader-unfinished", says)


# --- tables


def check_memory_tables(judged: Judged, told: Mapping[str, Any]) -> Iterator[Contradiction]:
    """The tables of the embedded mode equal the second fold of the log up to where they are."""
    rows = refold(i for i in judged.accepted.values() if i.index < told["applied"])
    yield from _compare(judged, rows, told["rows"], "memory")
    counts = {f"{k}:{s}": n for k, states in told["counts"].items() for s, n in states.items()}
    if counts != counts_of(rows):
        says = f"counts of memory are {counts}, of the log {counts_of(rows)}"
        yield Contradiction("counts", says)


def _compare(
    judged: Judged, rows: Rows, told: Mapping[str, Mapping[str, Any]], where: str
) -> Iterator[Contradiction]:
    for kind, table in rows.items():
        for row_id in sorted({*table, *told[kind]}):
            wanted, held = plain(table.get(row_id, {})), plain(told[kind].get(row_id, {}))
            if same_row(wanted, held):
                continue
            names = sorted(n for n in {*wanted, *held} if wanted.get(n) != held.get(n))
            says = f"the row of {kind} {row_id!r} in {where} is not what the log makes of it"
            lines = [f"{n}: {held.get(n)!r}, the log says {wanted.get(n)!r}" for n in names[:4]]
            index = wanted.get("index", held.get("index"))
            if index in judged.accepted:
                item = judged.accepted[index]
                lines.append(f"log[{index}]: {item.event}")
            yield Contradiction(f"row-{where}", says, tuple(lines))


def same_row(wanted: Mapping[str, Any], held: Mapping[str, Any]) -> bool:
    """Whether two plain rows are equal; manifests are compared as what they say."""
    return _parsed(wanted) == _parsed(held)


def _parsed(row: Mapping[str, Any]) -> Mapping[str, Any]:
    data = row.get("available")
    if not isinstance(data, Mapping) or "manifest" not in data:
        return row
    return {**row, "available": {**data, "manifest": json.loads(data["manifest"])}}


def _connect(uri: str) -> client.Redis:
    return client.Redis.from_url(uri, decode_responses=True, socket_timeout=ANSWER_S)


def redis_applied(uri: str, prefix: str) -> int:
    """The index up to which the tables in Redis are, -1 where there are none."""
    with _connect(uri) as redis:
        value = cast("str | None", redis.hget(f"{{{prefix}}}:meta", "applied"))
    return -1 if value is None else int(value)


def check_redis_tables(judged: Judged, uri: str, prefix: str) -> Iterator[Contradiction]:
    """The rows, counters and indexes in Redis equal the second fold, up to where they are."""
    with _connect(uri) as redis:
        meta = cast("dict[str, str]", redis.hgetall(f"{{{prefix}}}:meta"))
        base = f"{{{prefix}}}:{meta['generation']}:"
        rows = refold(i for i in judged.accepted.values() if i.index < int(meta["applied"]))
        told: Rows = {kind: {} for kind in rows}
        for key in redis.scan_iter(match=f"{_literal(base)}*", count=1000):
            kind, _, row_id = key[len(base) :].partition(":")
            if kind in rows:
                fields = cast("dict[str, str]", redis.hgetall(key))
                told[kind][row_id] = _row_of(fields, rows[kind].get(row_id, {}))
        yield from _compare(judged, rows, told, "redis")
        counts = cast("dict[str, str]", redis.hgetall(f"{base}counts"))
        held = {key: int(n) for key, n in counts.items() if int(n)}
        if held != counts_of(rows):
            yield Contradiction("counts", f"Redis counts {held}, the log {counts_of(rows)}")
        for (kind, name), wanted in indexes_of(rows).items():
            scores = redis.zrange(f"{base}ix:{kind}:{name}", 0, -1, withscores=True)
            found = {
                row_id: int(score) for row_id, score in cast("list[tuple[str, float]]", scores)
            }
            if found != wanted:
                odd = sorted(set(found.items()) ^ set(wanted.items()))[:3]
                yield Contradiction("index", f"index {kind}:{name} in Redis differs: {odd}")


def _literal(text: str) -> str:
    return "".join(f"\\{c}" if c in "*?[]\\" else c for c in text)


def _row_of(fields: Mapping[str, str], like: Mapping[str, Any]) -> dict[str, Any]:
    """The row that a hash spells, read as the types of another one say."""
    row: dict[str, Any] = {}
    for name, text in fields.items():
        if name.endswith("_iso") or (name == "available_at" and "available" in fields):
            continue
        value = like.get(name)
        if isinstance(value, str):
            row[name] = text
        elif isinstance(value, int):
            row[name] = int(text)
        else:
            try:
                row[name] = json.loads(text)
            except ValueError:
                row[name] = text
    return row


# --- replicas


def replica_end(records: Sequence[Raw]) -> int:
    """The origin's index of the last event that a replica holds, -1 for none."""
    return max((entry["origin_index"] for entry, _ in _replicated(records)), default=-1)


def _replicated(records: Sequence[Raw]) -> Iterator[tuple[dict[str, Any], Raw]]:
    """What counts in a replica: each entry that names the one before it as the last."""
    last = -1
    for record in records:
        entry = None if record.value is None else decode_replica_record(record.value)
        if entry is not None and entry["prev_origin_index"] == last < entry["origin_index"]:
            last = entry["origin_index"]
            yield entry, record


def check_replica(judged: Judged, records: Sequence[Raw]) -> Iterator[Contradiction]:
    """A replica holds the origin's accepted events, byte for byte, at their indices."""
    wanted = [judged.accepted[index] for index in sorted(judged.accepted)]
    held = [entry for entry, _ in _replicated(records)]
    for item, entry in zip(wanted, held, strict=False):
        same = (
            (entry["envelope"] == item.value or _is_omission(entry["envelope"], item))
            and entry["origin_index"] == item.index
            and entry["origin_created_at"] == item.created_at
            and str(judged.log_id) == _uuid(entry["origin_log_id"])
        )
        if not same:
            says = f"the replica holds {entry['origin_index']} where the origin has {item.index}"
            detail = f"times {entry['origin_created_at']} and {item.created_at}"
            yield Contradiction("replica", says, (f"log[{item.index}]: {item.event}", detail))
            return
    if len(held) > len(wanted):
        says = f"the replica holds {len(held)} events, its origin {len(wanted)}"
        yield Contradiction("replica", says)


def _is_omission(envelope: bytes, item: Accepted) -> bool:
    """Whether an entry stands openly for an event that was too large for the replica."""
    event = decode_record(envelope)
    if event is None or len(item.value) < OMITTED_BYTES_MIN:
        return False
    like = replace(event, payload=item.event.payload, payload_digest=item.event.payload_digest)
    return like == item.event and "omitted" in event.body()


def _uuid(raw: bytes) -> str:
    text = raw.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
