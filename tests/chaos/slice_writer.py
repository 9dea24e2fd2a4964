"""A graph process for `test_slice_kill`: builds partitions until it is told to end, or killed.

`slice_writer.py LOG NAME` first appends again what standard input holds (record values in hex, one
a line, then an empty line), and then works until standard input ends. Before each append it says
`intent` and the record values, after it `answer` and for each the index, or null where refused.
"""

import json
import os
import sys
import threading
from itertools import count

from belog.producers import Producer
from belog.schemas.envelope import Event, decode_event, encode_event
from belog.schemas.errors import Conflict
from belog.schemas.events import (
    PartitionAvailable,
    PartitionBuilding,
    PartitionObserved,
    PartitionRequested,
    PartitionScheduled,
)
from belog.storage import Receipt, open_log

PARTITIONS = 30


def main(log_uri: str, name: str) -> None:
    again = [decode_event(bytes.fromhex(line)) for line in iter(sys.stdin.readline, "\n")]
    ended = threading.Event()

    def listen() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=listen, daemon=True).start()
    with open_log(log_uri) as log:
        log.initialize()
        with Producer(log, actor=name) as producer:
            if again:
                publish(producer, again)
            for number in count():
                if ended.is_set():
                    return
                ref = f"{name}/{number % PARTITIONS}"
                build = f"{name}-{os.getpid()}-{number}"
                publish(producer, [producer.event(PartitionObserved(), f"shared/{number % 5}")])
                publish(
                    producer,
                    [
                        producer.event(step(build_request_id=build), ref)
                        for step in (
                            PartitionRequested,
                            PartitionScheduled,
                            PartitionBuilding,
                            PartitionAvailable,
                        )
                    ],
                )


def publish(producer: Producer, events: list[Event]) -> None:
    say("intent", [encode_event(event).hex() for event in events])
    answers: list[int | None] = []
    for answer in producer.append_batch(events):
        if isinstance(answer, Receipt):
            answers.append(answer.index)
        elif isinstance(answer, Conflict):
            answers.append(None)
        else:
            raise answer
    say("answer", answers)


def say(word: str, what: object) -> None:
    sys.stdout.write(f"{word} {json.dumps(what)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
