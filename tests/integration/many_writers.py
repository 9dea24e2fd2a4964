"""Many processes that write to a log while others follow it."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

from belog.storage import open_log
from tests.integration.log_workers import follow, ids_of, write

WRITERS = 8
FOLLOWERS = 4


def check_many_writers(uri: str, events: int, seed: int) -> None:
    """Append by eight processes in every way there is, while four follow, and compare them all."""
    with (
        open_log(uri) as log,
        ProcessPoolExecutor(WRITERS + FOLLOWERS, multiprocessing.get_context("spawn")) as pool,
    ):
        log.initialize()
        each = events // WRITERS
        followers = [pool.submit(follow, uri, each * WRITERS) for _ in range(FOLLOWERS)]
        writers = [pool.submit(write, uri, w, each, f"{seed}-{w}") for w in range(WRITERS)]
        told = [pair for writer in writers for pair in writer.result()]
        held = ids_of(log)
        assert sorted(told, key=lambda pair: pair[1]) == held[1:]
        for follower in followers:
            seen = follower.result()
            assert [(event_id, index) for index, event_id, _ in seen] == held
            times = [created_at for *_, created_at in seen]
            assert times == sorted(times)
