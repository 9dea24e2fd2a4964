"""One log as a service holds it: appends in groups, and the feed that wakes who waits."""

import asyncio
import random
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from belog.processors.rows import PartitionRow
from belog.producers import Producer
from belog.schemas.envelope import Event, StoredEvent
from belog.schemas.errors import (
    BelogError,
    Closed,
    Conflict,
    Forbidden,
    Gone,
    IndexConflict,
    LogTruncated,
    Overloaded,
    ReplicaRefused,
    Unavailable,
)
from belog.schemas.filters import EventFilter, Terms
from belog.service import feed as feed_module
from belog.service.access import Access, Grant, Role
from belog.service.instance import Instance, InstanceSettings
from belog.service.snapshots import take_snapshot
from belog.sink.run import run_sink
from belog.storage import Receipt, open_log
from belog.storage.snapshots import SnapshotStore
from tests.examples import event
from tests.servers import eventually

GRANT = Access.open().authenticate(None)


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 30))


@asynccontextmanager
async def opened(path: Path, **settings: str | int | None) -> AsyncIterator[Instance]:
    uri = f"sqlite:///{path / 'log.db'}"
    async with Instance(
        msgspec.convert({"log_uri": uri, **settings}, InstanceSettings)
    ) as instance:
        yield instance


async def waiting(instance: Instance, count: int) -> None:
    await asyncio.to_thread(eventually, lambda: instance.feed.waiters == count, "they wait")


def asked(n: int, ref: str | None = None) -> Event:
    return event("v1.partition.requested", ref or f"data://x/{n}", n=n)


def receipts(results: list[Receipt | BelogError]) -> list[Receipt]:
    return [result for result in results if isinstance(result, Receipt)]


def test_appends_of_many_callers_land_once_each_and_are_in_the_tables_when_seen(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with opened(tmp_path) as instance:
            answers = await asyncio.gather(
                *(instance.append(GRANT, [asked(n), asked(1000 + n)]) for n in range(100))
            )
            found = [receipt.index for results in answers for receipt in receipts(results)]
            assert sorted(found) == list(range(1, 201))
            # Those of one request stay together.
            assert all(b.index == a.index + 1 for a, b in map(receipts, answers))
            await instance.reach(200, 10)
            row = instance.queries.tables.get(PartitionRow, "data://x/7").value
            assert row is not None
            assert row.state == "requested"

    run(test)


def test_a_refused_event_stays_alone_with_its_error_and_is_remembered(tmp_path: Path) -> None:
    async def test() -> None:
        async with opened(tmp_path) as instance:
            first, second, third = await instance.append(
                GRANT, [asked(1, "a"), asked(2, "a"), asked(3, "b")]
            )
            assert isinstance(first, Receipt)
            assert isinstance(second, Conflict)
            assert isinstance(third, Receipt)
            (entry,) = instance.refusals.entries()
            assert (entry.subject_id, entry.result) == ("a", second.code)

    run(test)


def test_conditions_hold_for_the_whole_request(tmp_path: Path) -> None:
    async def test() -> None:
        async with opened(tmp_path) as instance:
            with pytest.raises(IndexConflict) as lost:
                await instance.append(GRANT, [asked(1)], at=2)
            assert lost.value.next_idx == 1
            (receipt,) = receipts(await instance.append(GRANT, [asked(1)], at=1))
            assert receipt.index == 1
            with pytest.raises(Conflict):
                await instance.append(GRANT, [asked(2, "b"), asked(3, "b")], atomic=True)
            assert instance.end().next_idx == 2

    run(test)


def test_an_event_outside_a_grant_is_refused_and_others_of_its_batch_go_on(tmp_path: Path) -> None:
    async def test() -> None:
        grant = Grant("alice", Role.APPEND, ("a/*",))
        async with opened(tmp_path) as instance:
            mine = event("v1.partition.requested", "a/1", n=1, actor="alice")
            theirs = event("v1.partition.requested", "b/1", n=2, actor="alice")
            as_bob = event("v1.partition.requested", "a/2", n=3, actor="bob")
            results = await instance.append(grant, [mine, theirs, as_bob])
            kinds = [type(result) for result in results]
            assert kinds == [Receipt, Forbidden, Forbidden]
            with pytest.raises(Forbidden):
                await instance.append(grant, [mine, theirs], atomic=True)

    run(test)


def test_a_later_event_of_a_job_run_is_measured_by_what_the_run_makes(tmp_path: Path) -> None:
    async def test() -> None:
        grant = Grant("alice", Role.APPEND, ("a/*",))
        async with opened(tmp_path) as instance:
            scheduled = event(
                "v1.job.scheduled",
                "run-1",
                {"build_request_id": "b", "outputs": ["b/1"]},
                n=1,
                actor="bob",
            )
            bob = Grant("bob", Role.APPEND)
            (receipt,) = receipts(await instance.append(bob, [scheduled]))
            await instance.reach(receipt.index, 10)
            running = event("v1.job.running", "run-1", {}, n=2, actor="alice")
            (result,) = await instance.append(grant, [running])
            assert isinstance(result, Forbidden)

    run(test)


@pytest.mark.parametrize("kept", [20_000, 5])
def test_followers_with_any_filter_see_every_match_once_in_order(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    monkeypatch.setattr(feed_module, "KEPT_EVENTS_MAX", kept)
    rng = random.Random(seed)
    filters = [
        EventFilter(),
        EventFilter(partition_refs=("data://x/3", "data://x/40")),
        EventFilter(partition_patterns=("data://x/1*",)),
        EventFilter(build_request_ids=("build-1",)),
        EventFilter(event_types=("v1.partition.scheduled",), partition_patterns=("data://x/?",)),
        EventFilter(actors=("nobody",)),
    ]

    async def test() -> None:
        async with opened(tmp_path) as instance:
            done = asyncio.Event()

            async def follow(wanted: EventFilter) -> list[int]:
                seen: list[int] = []
                cursor = 0
                while True:
                    was_done = done.is_set()
                    page = await instance.feed.page(
                        cursor, wanted, limit=rng.randint(1, 50), wait_s=rng.choice((0, 0.05, 0.5))
                    )
                    assert page.next_idx >= cursor
                    seen += [stored.index for stored in page.events]
                    cursor = page.next_idx
                    if was_done and cursor == instance.feed.end and not page.has_more:
                        return seen
                    if not page.events:
                        await instance.feed.wait_for(cursor, 0.01)

            following = [asyncio.create_task(follow(wanted)) for wanted in filters]
            n = 0
            for _ in range(30):
                count = rng.randint(1, 8)
                events = [asked(n + k) for k in range(count)]
                events += [
                    event("v1.partition.scheduled", e.subject_id, n=10_000 + n + k)
                    for k, e in enumerate(events)
                ]
                n += count
                await instance.append(GRANT, events)
                if rng.random() < 0.3:
                    await instance.feed.wait_for(instance.end().next_idx - 1, 10)
            await instance.feed.wait_for(instance.end().next_idx - 1, 10)
            done.set()
            for wanted, task in zip(filters, following, strict=True):
                expected = [stored.index for stored in instance.log.read(0, wanted).events]
                assert await task == expected, wanted
            assert instance.feed.waiters == 0
            assert not instance.feed._register  # noqa: SLF001 - would grow unseen

    run(test)


def test_a_waiter_is_woken_by_another_process_and_a_silent_page_moves_on(tmp_path: Path) -> None:
    async def test() -> None:
        async with opened(tmp_path) as instance:
            wanted = EventFilter(partition_refs=("data://x/2",))
            task = asyncio.create_task(instance.feed.page(1, wanted, limit=10, wait_s=20))

            def write() -> None:
                with open_log(instance.settings.log_uri) as log:
                    log.initialize()
                    with Producer(log, actor="other") as producer:
                        producer.append_event(asked(1))
                        producer.append_event(asked(2))

            await instance.calls.run(write)
            page = await task
            assert [stored.index for stored in page.events] == [2]
            silent = await instance.feed.page(
                1, EventFilter(actors=("nobody",)), limit=10, wait_s=0.01
            )
            assert (silent.events, silent.next_idx, silent.has_more) == ((), 3, False)
            with pytest.raises(Unavailable, match="index 99 was waited for"):
                await instance.reach(99, 0.01)

    run(test)


def test_an_event_that_comes_when_the_time_is_just_over_is_not_passed_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with opened(tmp_path) as instance:
            feed = instance.feed
            entry = feed_module._Entry(  # noqa: SLF001 - an order of callbacks that is rare
                StoredEvent(1, 5, asked(1)), Terms(partition_refs=("data://x/1",))
            )

            def too_late(future: "asyncio.Future[int]") -> None:
                future.set_result(-1)
                # Before who waited has looked at it.
                feed._publish([entry], 2, threading.Event())  # noqa: SLF001 - as above

            monkeypatch.setattr(feed_module, "_time_over", too_late)
            page = await feed.page(1, limit=10, wait_s=0.01)
            assert ([stored.index for stored in page.events], page.next_idx) == ([1], 2)

    run(test)


def test_a_follower_that_was_given_up_leaves_nothing_behind(tmp_path: Path) -> None:
    async def test() -> None:
        async with opened(tmp_path) as instance:
            tasks = [
                asyncio.create_task(
                    instance.feed.page(
                        1, EventFilter(partition_refs=(f"r{n}",)), limit=1, wait_s=60
                    )
                )
                for n in range(10)
            ]
            await waiting(instance, 10)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert instance.feed.waiters == 0
            assert not instance.feed._register  # noqa: SLF001 - would grow unseen

    run(test)


def test_waiters_are_answered_when_the_service_stops_and_appends_are_finished(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with opened(tmp_path) as instance:
            end = instance.feed.end
            task = asyncio.create_task(instance.feed.page(end, limit=1, wait_s=60))
            await waiting(instance, 1)
            instance.stop()
            with pytest.raises(Closed):
                await task
            assert not (await instance.calls.run(instance.readiness)).is_ready
            appending = asyncio.create_task(instance.append(GRANT, [asked(1)]))
            await asyncio.to_thread(eventually, lambda: instance.end().next_idx == 2, "it is taken")
        assert len(receipts(await appending)) == 1

    run(test)


def test_too_many_waiters_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_module, "WAITERS_MAX", 0)

    async def test() -> None:
        async with opened(tmp_path) as instance:
            with pytest.raises(Overloaded):
                await instance.feed.page(instance.feed.end, limit=1, wait_s=1)

    run(test)


def test_a_replica_is_served_for_reading_only(tmp_path: Path) -> None:
    origin, replica = f"sqlite:///{tmp_path / 'o.db'}", f"sqlite:///{tmp_path / 'log.db'}"
    with open_log(origin) as log:
        log.initialize()
        with Producer(log, actor="x") as producer:
            producer.append_event(asked(1))
    run_sink(origin, replica, stop=threading.Event(), follow=False)

    async def test() -> None:
        async with opened(tmp_path) as instance:
            with pytest.raises(ReplicaRefused):
                await instance.append(GRANT, [asked(2)])
            page = await instance.feed.page(0, limit=10)
            assert [stored.index for stored in page.events] == [0, 1]
            assert (await instance.calls.run(instance.readiness)).is_ready

    run(test)


def test_a_start_goes_on_from_the_snapshot_that_was_taken_on_the_way(tmp_path: Path) -> None:
    folder = str(tmp_path / "snapshots")

    async def test() -> None:
        async with opened(tmp_path, snapshots=folder, snapshot_every_events=50) as instance:
            await instance.append(GRANT, [asked(n) for n in range(100)])
            wanted = EventFilter(event_types=("v1.system.snapshot_taken",))
            page = await instance.feed.page(0, wanted, limit=1, wait_s=20)
            assert len(page.events) == 1
            root = instance.end().root
        async with opened(tmp_path, snapshots=folder, snapshot_every_events=None) as instance:
            end = instance.end()
            assert (end.next_idx, end.root) == (102, root)
            row = instance.queries.tables.get(PartitionRow, "data://x/99").value
            assert row is not None

    run(test)


def test_the_end_is_that_of_the_log_also_where_the_tables_are_behind(tmp_path: Path) -> None:
    async def test() -> None:
        uri = f"sqlite:///{tmp_path / 'log.db'}"
        async with opened(tmp_path) as instance:
            await instance.append(GRANT, [asked(n) for n in range(5)])
            assert await instance.calls.run(instance.end) == instance.log.end()
            with ExitStack() as stack:
                log = stack.enter_context(open_log(uri))
                log.initialize()
                other = stack.enter_context(Producer(log, actor="other"))
                other.append_event(asked(5))
                assert await instance.calls.run(instance.end) == log.end()
                # The feed hands its page to this loop, which stands still: they read no further.
                index = other.append_event(asked(6)).index
                assert instance.queries.tables.wait_for(index, 10)
                index = other.append_event(asked(7)).index
                end = instance.end()
                assert instance.queries.tables.status().applied == index
                assert (end, end.next_idx) == (log.end(), index + 1)

    run(test)


def test_a_cursor_that_the_log_has_not_come_to_is_refused(tmp_path: Path) -> None:
    async def test() -> None:
        async with opened(tmp_path) as instance:
            await instance.append(GRANT, [asked(1)])
            end = instance.end().next_idx
            for wait_s in (0, 0.01):
                page = await instance.feed.page(end, limit=1, wait_s=wait_s)
                assert (page.events, page.next_idx) == ((), end)
                with pytest.raises(LogTruncated, match=f"ends at {end}, the cursor is at 99"):
                    await instance.feed.page(99, limit=1, wait_s=wait_s)

    run(test)


def test_those_who_wait_get_an_error_of_their_own(tmp_path: Path) -> None:
    async def test() -> None:
        async with opened(tmp_path) as instance:
            end = instance.feed.end
            pages = [
                asyncio.create_task(instance.feed.page(end, limit=1, wait_s=60)) for _ in range(3)
            ]
            await waiting(instance, 3)
            instance.stop()
            errors = await asyncio.gather(*pages, return_exceptions=True)
            assert [type(error) for error in errors] == [Closed] * 3
            assert len(set(map(id, errors))) == 3

    run(test)


def test_a_vacuumed_log_gives_nothing_out_that_was_removed_and_can_be_served_again(
    tmp_path: Path,
) -> None:
    folder = SnapshotStore(tmp_path / "snapshots")

    async def test() -> None:
        async with opened(tmp_path) as instance:
            removed = event("v1.partition.observed", "a", n=1)
            kept = event("v1.partition.observed", "a", n=2)
            await instance.append(GRANT, [removed, kept])
            take_snapshot(instance.log, folder)
            before = instance.queries.clock() + 10**9
            assert instance.log.vacuum(before, dry_run=False, snapshots=folder).removed
            await instance.feed.wait_for(instance.end().next_idx - 1, 10)
            with pytest.raises(Gone):
                await instance.feed.page(0, limit=10)
        # Nobody names the folder: the log does.
        async with opened(tmp_path) as instance:
            row = instance.queries.tables.get(PartitionRow, "a").value
            assert row is not None
            assert row.state == "available"

    run(test)
