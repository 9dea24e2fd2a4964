"""One process of a race: appends legal-looking events and says what it was told of each.

`python racer.py URI NUMBER SEED COUNT`. Prints `ready`, waits for a line, then prints one
line of JSON an event as soon as it knows its outcome. What has no known outcome is tried again with
the same event id until it has one. Ends when all are decided.
"""

import json
import random
import sys
from collections.abc import Iterator

from belog.producers import Pending, Producer
from belog.schemas.envelope import Event
from belog.schemas.errors import BelogError, Conflict
from belog.schemas.lifecycle import SubjectKind
from belog.storage import Receipt, open_log

PARTITIONS = 5
PARTITION: SubjectKind = "partition"
RETRIES_MAX = 400


def main() -> None:
    uri, number, seed, count = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    chosen = random.Random(f"{seed}-{number}")
    with open_log(uri) as log:
        log.initialize()
        with Producer(log, actor=f"racer-{number}", wait_s=5) as producer:
            say("ready")
            sys.stdin.readline()
            for answer in race(producer, number, chosen, count):
                say(json.dumps(answer))


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def race(
    producer: Producer, number: int, chosen: random.Random, count: int
) -> Iterator[dict[str, object]]:
    while count > 0:
        size = min(chosen.choice((1, 1, 1, 2, 5, 20)), count)
        count -= size
        way = chosen.choice(("append", "submit", "batch"))
        if way == "batch":
            events = [legal_looking(producer, number, chosen) for _ in range(size)]
            answers = producer.append_batch(events)
            yield from (told(producer, e, a) for e, a in zip(events, answers, strict=True))
            continue
        sent: list[tuple[Event, Pending | BelogError]] = []
        for _ in range(size):
            event = legal_looking(producer, number, chosen)
            try:
                pending: Pending | BelogError = producer.submit_event(event)
            except BelogError as error:
                pending = error
            if way == "append":
                yield told(producer, event, outcome(pending))
            else:
                sent.append((event, pending))
        yield from (told(producer, e, outcome(p)) for e, p in sent)


def legal_looking(producer: Producer, number: int, chosen: random.Random) -> Event:
    """An event that is legal over what this process has read, most of the time."""
    ref = f"data://race/{chosen.randrange(PARTITIONS)}"
    state = producer.known_state(PARTITION, ref)
    allowed = producer.lifecycle.allowed(PARTITION, state.state if state else "")
    event_type = chosen.choice(allowed) if chosen.random() < 0.95 else "v1.partition.building"
    owner = state.owner if state and chosen.random() < 0.7 else None
    build = owner or f"build-{number}-{chosen.randrange(3)}"
    body: dict[str, object] = {}
    if event_type in producer.lifecycle.attempt_events:
        body["build_request_id"] = build
    if event_type == "v1.partition.delegated":
        body["delegated_to_log"] = "elsewhere"
    expected = (state.index if state else -1) if chosen.random() < 0.2 else None
    return producer.event(event_type, ref, body, expected=expected)  # type: ignore[arg-type]


def outcome(pending: Pending | BelogError) -> Receipt | BelogError:
    if isinstance(pending, BelogError):
        return pending
    try:
        return pending.result()
    except BelogError as error:
        return error


def told(producer: Producer, event: Event, answer: Receipt | BelogError) -> dict[str, object]:
    retries = 0
    while isinstance(answer, BelogError) and not isinstance(answer, Conflict):
        if not answer.retriable or retries == RETRIES_MAX:
            raise answer
        retries += 1
        try:
            answer = producer.append_event(event)
        except BelogError as error:
            answer = error
    said: dict[str, object] = {"id": event.event_id.hex(), "retries": retries}
    if isinstance(answer, Receipt):
        return said | {"index": answer.index, "duplicate": answer.duplicate}
    return said | {
        "code": answer.code,
        "at": answer.index,
        "state": answer.state,
        "last": answer.last_index,
        "owner": answer.owner,
        "allowed": list(answer.allowed),
        "type": event.event_type,
        "ref": event.subject_id,
        "build": event.body().get("build_request_id"),
        "expected": event.expected,
    }


if __name__ == "__main__":
    main()
