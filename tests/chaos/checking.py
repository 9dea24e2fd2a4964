"""The checker: from what processes wrote down and what the log holds, was every answer true?

It shares no code with what it checks. A `Contradiction` names the few lines of history and records
of the log that cannot both be right; `check` returns all that it finds, the shortest first.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from tests.chaos.history import Call, History
from tests.chaos.rules import UNDER_WAY, Accepted, Fields, Judged, allowed_in, is_legal

__all__ = ["Attempt", "Case", "Contradiction", "check"]

NOT_WRITTEN = frozenset(
    {"unavailable", "overloaded", "index_conflict", "atomic_refused", "unsupported"}
)
"""Errors that promise that the event was not written."""

REFUSALS = frozenset(
    {"illegal_transition", "not_owner", "expected_mismatch", "event_id_reused", "conflict"}
)


@dataclass(frozen=True)
class Contradiction:
    """Things that cannot all be right."""

    rule: str
    """A slug."""
    says: str
    """What is wrong, one sentence."""
    evidence: tuple[str, ...] = ()
    """Lines of history and records of the log."""

    def __str__(self) -> str:
        return "\n".join([f"{self.rule}: {self.says}", *(f"    {line}" for line in self.evidence)])


@dataclass(frozen=True)
class Attempt:
    """One event of one call, with the answer."""

    call: Call
    place: int
    event: Fields
    answer: Mapping[str, Any] | None
    """None: none is known."""

    @property
    def index(self) -> int | None:
        """Where the event is, if it was acknowledged."""
        return None if self.answer is None else self.answer.get("r")

    @property
    def is_first(self) -> bool:
        """Whether it was acknowledged as new."""
        return self.answer is not None and "r" in self.answer and not self.answer["dup"]

    @property
    def refusal(self) -> str | None:
        """The code of a refusal."""
        return None if self.answer is None else self.answer.get("e")

    @property
    def was_not_written(self) -> bool:
        """Whether an error promised that nothing was written."""
        return self.answer is not None and self.answer.get("u") in NOT_WRITTEN

    @property
    def is_unknown(self) -> bool:
        """Whether the event may or may not be in the log."""
        return self.index is None and self.refusal is None and not self.was_not_written

    def __str__(self) -> str:
        call = self.call
        end = "…" if call.end is None else f"{call.end / 1e9:.6f}"
        told = "no answer" if self.answer is None else _told(self.answer)
        where = f"{call.where}[{self.place}]"
        return f"{where} {call.op} {call.start / 1e9:.6f}–{end}: {self.event} → {told}"


def _told(answer: Mapping[str, Any]) -> str:
    if "r" in answer:
        return f"receipt {answer['r']}{' (duplicate)' if answer['dup'] else ''}"
    if "e" in answer:
        return (
            f"{answer['e']} at {answer['at']}: state {answer['state'] or '∅'!r} since"
            f" {answer['last']}, owner {answer['owner']}"
        )
    return f"{answer.get('u')}: {answer.get('message', '')[:120]}"


@dataclass
class Case:
    """Everything that a check looks at."""

    history: History
    judged: Judged
    is_conditional: bool
    """Whether the backend's records all count."""
    allows: frozenset[str] = frozenset()
    undecided_until: int = -1
    """Answers of calls that began before this moment (ns) prove nothing: the log was cut."""
    attempts: list[Attempt] = field(default_factory=list)
    by_id: dict[bytes, list[Attempt]] = field(default_factory=lambda: defaultdict(list))
    acks: list[tuple[int, int, Attempt]] = field(default_factory=list)
    """(end, highest index acknowledged up to then, by which attempt), by end."""

    def __post_init__(self) -> None:
        """Flatten the calls into attempts."""
        for call in self.history.calls:
            if call.op == "state":
                continue
            nothing: Sequence[Mapping[str, Any] | None] = [None] * len(call.items)
            answers = call.answers or nothing
            for place, (item, answer) in enumerate(zip(call.items, answers, strict=True)):
                attempt = Attempt(call, place, fields_of(item), self._decided(call, answer))
                self.attempts.append(attempt)
                self.by_id[attempt.event.event_id].append(attempt)
        highest = -1
        known = [(a.call.end or 0, a.index, a) for a in self.attempts if a.index is not None]
        for end, index, attempt in sorted(known, key=lambda ack: ack[:2]):
            highest = max(highest, index)
            by = attempt if highest == index else self.acks[-1][2]
            self.acks.append((end, highest, by))

    def _decided(self, call: Call, answer: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        return None if call.start < self.undecided_until else answer

    def acknowledged_before(self, time: int) -> tuple[int, Attempt | None]:
        """The highest index that anybody was told before a moment, and by which attempt."""
        at = bisect_left(self.acks, time, key=lambda ack: ack[0])
        return (-1, None) if at == 0 else self.acks[at - 1][1:]

    def record(self, index: int) -> str:
        """A record of the log, for people."""
        judged = self.judged
        event = judged.events.get(index)
        if index in judged.accepted:
            return f"log[{index}]: {event}, {judged.accepted[index].before or '∅'!r} before it"
        if index in judged.duplicates:
            return f"log[{index}]: {event}, a duplicate of {judged.duplicates[index]}"
        if index in judged.void:
            return f"log[{index}]: {event}, void ({judged.void[index]})"
        what = "a tombstone" if index in judged.tombstones else "no record"
        return f"log[{index}]: {what} (the log ends at {judged.end})"


def fields_of(item: Mapping[str, Any]) -> Fields:
    """The event of a journal."""
    raw = {k: bytes.fromhex(item[k]) for k in ("event_id", "payload", "payload_digest")}
    caused_by = None if item["caused_by"] is None else bytes.fromhex(item["caused_by"])
    return Fields(**{**item, **raw, "caused_by": caused_by})


def check(case: Case) -> list[Contradiction]:
    """All contradictions between a history and its log, the shortest first."""
    rules = (_log, _receipts, _refusals, _written, _order, _batches, _looks, _stops, _went_on)
    found = [contradiction for rule in rules for contradiction in rule(case)]
    return sorted(found, key=lambda c: len(c.evidence))


def _same(event: Fields, other: Fields) -> bool:
    """What a repetition must have in common with the first."""
    return (event.event_type, event.subject, event.payload) == (
        other.event_type,
        other.subject,
        other.payload,
    )


# --- the log by itself


def _log(case: Case) -> Iterator[Contradiction]:
    judged = case.judged
    if case.is_conditional:
        for index in [*judged.duplicates, *judged.void]:
            says = "the backend judges before it writes, and holds a record that does not count"
            yield Contradiction("record-without-effect", says, (case.record(index),))
        positions = [record.position for record in judged.records]
        for expected, position in enumerate(positions):
            if expected != position:
                says = f"index {expected} is missing"
                yield Contradiction("gap", says, (case.record(position),))
                break
    if not judged.accepted and "replaced" not in case.allows:
        yield Contradiction("empty-log", "the log holds no event at all")
    for item in judged.accepted.values():
        event = item.event
        if event.subject_kind == "system" or event.actor.startswith("chaos-"):
            continue
        sent = [a.event for a in case.by_id.get(event.event_id, [])]
        if not sent:
            says = "an event is in the log that nobody sent"
            yield Contradiction("phantom", says, (case.record(item.index),))
        elif event not in sent:
            says = "an event is in the log that was sent otherwise"
            lines = [str(a) for a in case.by_id[event.event_id][:2]]
            yield Contradiction("altered", says, (case.record(item.index), *lines))


# --- what was acknowledged


def _receipts(case: Case) -> Iterator[Contradiction]:
    judged = case.judged
    for attempt in case.attempts:
        index, answer = attempt.index, attempt.answer
        if index is None or answer is None:
            continue
        lines = (str(attempt), case.record(index))
        item = judged.accepted.get(index)
        if item is None or item.event.event_id != attempt.event.event_id:
            held = judged.by_id.get(attempt.event.event_id)
            rest = () if held is None else (case.record(held),)
            rule = "acknowledged-lost" if held is None else "acknowledged-elsewhere"
            says = "an acknowledged event is not where it was said to be"
            yield Contradiction(rule, says, (*lines, *rest))
        elif not _same(item.event, attempt.event) or (
            attempt.is_first and item.event != attempt.event
        ):
            says = "the event there is another one than was acknowledged"
            yield Contradiction("acknowledged-altered", says, lines)
        elif answer["at"] not in {item.created_at, item.raw_created_at} and not (
            answer["dup"] and answer["at"] == 0
        ):
            says = f"the receipt says {answer['at']} as its time, the log {item.created_at}"
            yield Contradiction("receipt-time", says, lines)
        elif answer["id"] != attempt.event.event_id.hex():
            yield Contradiction("receipt-id", "the receipt names another event", lines)
    for attempts in case.by_id.values():
        firsts = [a for a in attempts if a.is_first]
        if len(firsts) > 1:
            says = "one event was acknowledged as new more than once"
            yield Contradiction("doubled", says, tuple(str(a) for a in firsts[:2]))
        for attempt in attempts:
            if attempt.answer is not None and attempt.answer.get("dup"):
                earlier = [a for a in attempts if a is not attempt and _begins_before(a, attempt)]
                if not earlier:
                    says = "an event was called a duplicate, and nobody had sent it before"
                    yield Contradiction("false-duplicate", says, (str(attempt),))


def _begins_before(one: Attempt, other: Attempt) -> bool:
    return other.call.end is None or one.call.start < other.call.end


# --- what was refused


def _refusals(case: Case) -> Iterator[Contradiction]:
    for attempt in case.attempts:
        code, answer = attempt.refusal, attempt.answer
        if code is None or answer is None:
            continue
        if code not in REFUSALS:
            says = f"a refusal of an unknown kind: {code}"
            yield Contradiction("strange-refusal", says, (str(attempt),))
        elif code == "event_id_reused":
            yield from _reused(case, attempt, answer)
        else:
            yield from _unjustified(case, attempt, answer)


def _reused(case: Case, attempt: Attempt, answer: Mapping[str, Any]) -> Iterator[Contradiction]:
    first = case.judged.accepted.get(answer["at"])
    if first is None or first.event.event_id != attempt.event.event_id:
        says = "an id was called used, and the log does not hold it there"
        yield Contradiction("false-reuse", says, (str(attempt), case.record(answer["at"])))
    elif _same(first.event, attempt.event):
        says = "a repetition was taken for another event of the same id"
        yield Contradiction("false-reuse", says, (str(attempt), case.record(answer["at"])))


def _unjustified(
    case: Case, attempt: Attempt, answer: Mapping[str, Any]
) -> Iterator[Contradiction]:
    index, event = answer["at"], attempt.event
    before = case.judged.before(event.subject, index)
    last = -1 if before is None else before.index
    state = "" if before is None else before.after
    owner = before.owner if before is not None and state in UNDER_WAY else None
    lines = [str(attempt), *([case.record(before.index)] if before else [])]
    told = (answer["last"], answer["state"], answer["owner"])
    if told != (last, state, owner):
        says = f"at {index} the subject was {state or '∅'!r} since {last}, owned by {owner}"
        yield Contradiction("refused-untruly", says, tuple(lines))
        return
    why = is_legal(event, before)
    if why != answer["e"] and (why, answer["e"]) != ("bad_subject", "illegal_transition"):
        says = f"at {index} the event was {why or 'legal'}, and it was refused as {answer['e']}"
        yield Contradiction("refused-untruly", says, tuple(lines))
    elif set(answer["allowed"]) != allowed_in(event.subject_kind, state):
        says = "the refusal names other events as allowed than the diagram does"
        yield Contradiction("allowed-wrong", says, tuple(lines))
    highest, by = case.acknowledged_before(attempt.call.start)
    if index <= highest:
        says = f"the refusal was decided at {index}, when {highest} was acknowledged already"
        yield Contradiction("refused-by-the-past", says, (str(attempt), str(by)))
    first = case.judged.by_id.get(event.event_id)
    if first is not None and first < index:
        says = "an event was refused that the log held by then"
        yield Contradiction("refused-duplicate", says, (str(attempt), case.record(first)))


# --- what nobody acknowledged


def _written(case: Case) -> Iterator[Contradiction]:
    """An event in the log was acknowledged, or its outcome was unknown to somebody."""
    for event_id, attempts in case.by_id.items():
        index = case.judged.by_id.get(event_id)
        if index is None or any(a.is_unknown or a.is_first for a in attempts):
            continue
        says = "an event is in the log, and everybody who sent it was told that it was not written"
        lines = tuple(str(a) for a in attempts[:3])
        yield Contradiction("written-untold", says, (*lines, case.record(index)))


# --- real time


def _order(case: Case) -> Iterator[Contradiction]:
    for event_id, index in case.judged.by_id.items():
        attempts = case.by_id.get(event_id)
        if not attempts:
            continue
        firsts = [a for a in attempts if a.is_first] or attempts
        attempt = min(firsts, key=lambda a: a.call.start)
        highest, by = case.acknowledged_before(attempt.call.start)
        if by is not None and index <= highest:
            says = f"an event that began after {highest} was acknowledged stands before it"
            lines = (str(by), str(attempt), case.record(index))
            yield Contradiction("order-of-time", says, lines)


def _batches(case: Case) -> Iterator[Contradiction]:
    by_call: dict[str, list[Attempt]] = defaultdict(list)
    for attempt in case.attempts:
        by_call[attempt.call.where].append(attempt)
    for attempts in by_call.values():
        new = [a for a in attempts if a.is_first]
        for one, two in pairwise(new):
            if (one.index or 0) >= (two.index or 0):
                says = "two events of one call stand in the wrong order"
                yield Contradiction("order-of-batch", says, (str(one), str(two)))
        if attempts[0].call.op == "atomic":
            yield from _atomic(case, attempts)


def _atomic(case: Case, attempts: list[Attempt]) -> Iterator[Contradiction]:
    """All or none; a part may stand there already, or be sent by others too."""
    alone = [a for a in attempts if len(case.by_id[a.event.event_id]) == 1]
    places = [case.judged.by_id.get(a.event.event_id) for a in alone]
    inside = [p for p in places if p is not None]
    if inside and len(inside) < len(alone):
        says = "a part of an atomic batch is in the log"
        lines = tuple(f"{a}: {p}" for a, p in zip(alone, places, strict=True))
        yield Contradiction("half-batch", says, lines)


# --- looking


def _looks(case: Case) -> Iterator[Contradiction]:
    for call in case.history.calls:
        if call.op != "state" or not call.answers or call.start < case.undecided_until:
            continue
        answer, subject = call.answers[0], (call.items[0][0], call.items[0][1])
        if "u" in answer:
            continue
        line = case.judged.timelines.get(subject, [])
        last = answer.get("last", -1)
        told = f"{call.where} state {subject[1]!r} → {answer}"
        item = case.judged.accepted.get(last)
        if last >= 0 and (item is None or not _is_state(item, subject, answer)):
            says = "a state was told that the subject never had"
            yield Contradiction("false-state", says, (told, case.record(last)))
            continue
        # Its events above `last` must not have been acknowledged when the call began.
        for index in line[bisect_right(line, last) :][:1]:
            event = case.judged.accepted[index].event
            acked = [
                a
                for a in case.by_id.get(event.event_id, [])
                if a.index is not None and a.call.end is not None and a.call.end < call.start
            ]
            if acked:
                says = "a state was told that was over before the call began"
                yield Contradiction("old-state", says, (told, str(acked[0])))


def _is_state(item: Accepted, subject: tuple[str, str], answer: Mapping[str, Any]) -> bool:
    told = answer["state"], answer["owner"]
    return item.event.subject == subject and told == (item.after, item.owner)


# --- ends


def _stops(case: Case) -> Iterator[Contradiction]:
    if case.allows & {"stops", "lost_tail", "replaced"}:
        return
    for stop in case.history.stops:
        says = f"a process stopped with {stop['code']}, and nothing had been done to its log"
        yield Contradiction("stopped", says, (f"{stop['where']}: {stop['message']}",))


def _went_on(case: Case) -> Iterator[Contradiction]:
    """A life that knew events which the log lost was told of new ones afterwards."""
    lost: dict[tuple[str, int], str] = {}
    for call in case.history.calls:
        life = call.process, call.incarnation
        for item, answer in zip(call.items, call.answers or [], strict=False):
            if call.op == "state" or "r" not in answer:
                continue
            event = fields_of(item)
            told = f"{call.where} {event} → {_told(answer)}"
            if call.start >= case.undecided_until:
                if life in lost:
                    says = "a process went on with a log that had lost what the process knew"
                    yield Contradiction("went-on", says, (lost[life], told))
                    return
            elif case.judged.by_id.get(event.event_id) != answer["r"]:
                lost.setdefault(life, told)


def shortest(found: Iterable[Contradiction], count: int) -> list[Contradiction]:
    """The first contradictions to look at: of each rule the shortest."""
    by_rule: dict[str, Contradiction] = {}
    for contradiction in found:
        by_rule.setdefault(contradiction.rule, contradiction)
    return list(by_rule.values())[:count]
