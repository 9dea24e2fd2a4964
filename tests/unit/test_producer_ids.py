"""Ids and keys are never repeated, by no thread and by no forked process."""

import os
import signal
import threading
from uuid import UUID

from belog.producers import ids
from belog.producers.ids import AttemptKeys, random_uuid

CHILD_S = 20
"""Bound on what a forked child may take, seconds."""


def test_ids_are_random_uuids() -> None:
    drawn = [UUID(bytes=random_uuid()) for _ in range(1_000)]
    assert {u.version for u in drawn} == {4}
    assert {u.variant for u in drawn} == {"specified in RFC 4122"}
    assert len(set(drawn)) == 1_000


def test_keys_are_uuids_of_one_writer() -> None:
    keys = AttemptKeys()
    drawn = [UUID(bytes=keys.next()) for _ in range(1_000)]
    assert {u.version for u in drawn} == {8}
    assert {u.variant for u in drawn} == {"specified in RFC 4122"}
    assert len(set(drawn)) == 1_000
    assert len({u.bytes[:8] for u in drawn}) == 1
    assert AttemptKeys().next()[:8] != drawn[0].bytes[:8]


def test_keys_stay_unique_when_the_counter_comes_round() -> None:
    keys = AttemptKeys()
    keys._numbers = iter(range((1 << 62) - 2, (1 << 62) + 3))  # type: ignore[assignment] # noqa: SLF001
    drawn = [UUID(bytes=keys.next()) for _ in range(5)]
    assert len(set(drawn)) == 5
    assert {u.version for u in drawn} == {8}


def test_threads_draw_different_ones() -> None:
    keys = AttemptKeys()
    drawn: list[list[bytes]] = [[] for _ in range(8)]

    def draw(mine: list[bytes]) -> None:
        for _ in range(3_000):
            mine += (random_uuid(), keys.next())

    threads = [threading.Thread(target=draw, args=(mine,)) for mine in drawn]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({i for mine in drawn for i in mine}) == 8 * 6_000


def forked(count: int, keys: AttemptKeys) -> list[bytes]:
    """Draw ids and keys in a forked process."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(CHILD_S)  # where it hangs nobody else would end it
        os.write(writer, b"".join(random_uuid() + keys.next() for _ in range(count)))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        found = pipe.read()
    _, status = os.waitpid(child, 0)
    assert status == 0
    return [found[at : at + 16] for at in range(0, len(found), 16)]


def test_a_forked_process_repeats_nothing() -> None:
    keys = AttemptKeys()
    random_uuid()  # so that there is a stock
    with ids._lock:  # noqa: SLF001 - as another thread might hold it at the moment of the fork
        found = [forked(100, keys) for _ in range(3)]
    mine = [i for _ in range(100) for i in (random_uuid(), keys.next())]
    everything = [*mine, *(i for drawn in found for i in drawn)]
    assert len(everything) == 800
    assert len(set(everything)) == 800
    assert {UUID(bytes=i).version for i in everything} == {4, 8}
