"""Both clients against a service that runs, and is killed, paused, slow and exchanged."""

import asyncio
import random
import shutil
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

import pytest

from belog.client import (
    AsyncClient,
    Available,
    Building,
    Client,
    Cursor,
    CursorFile,
    Delegated,
    Receipt,
    Spooled,
    Subscription,
)
from belog.schemas.envelope import Event, StoredEvent
from belog.schemas.errors import (
    BelogError,
    Closed,
    IllegalTransition,
    IndexConflict,
    InvalidEvent,
    LogReplaced,
    LogTruncated,
    NotOwner,
    Unavailable,
)
from belog.schemas.events import (
    PartitionAvailable,
    PartitionBuilding,
    PartitionFailed,
    PartitionObserved,
    PartitionScheduled,
)
from belog.schemas.filters import EventFilter
from tests.servers import eventually
from tests.service_process import ServiceProcess

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

T = TypeVar("T")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """One for all tests that leave it in peace; each keeps to refs of its own."""
    folder = tmp_path_factory.mktemp("service")
    with ServiceProcess(f"sqlite:///{folder}/log.db", folder) as running:
        yield running


@pytest.fixture
def client(service: ServiceProcess) -> Iterator[Client]:
    with Client(service.url, retry_s=5) as made:
        yield made


@pytest.fixture
def own(tmp_path: Path) -> Iterator[ServiceProcess]:
    """A service that a test may break."""
    with ServiceProcess(f"sqlite:///{tmp_path}/log.db", tmp_path) as running:
        yield running


def observe(client: Client, ref: str) -> Event:
    return client.make(PartitionObserved(), ref)


# --- appending


def test_events_are_appended_and_read_back_byte_for_byte(client: Client, unique_name: str) -> None:
    event = observe(client, unique_name)
    receipt = client.append_event(event)
    assert client.append_event(event) == Receipt(
        receipt.index, receipt.created_at, event.event_id, duplicate=True
    )
    stored = client.event(receipt.index)
    assert stored is not None
    assert stored == client.event(event.event_id)
    assert (stored.event.payload, stored.event.actor) == (event.payload, "anonymous")
    assert client.event(uuid4()) is None
    assert client.event(10**9) is None


def test_errors_are_those_of_the_log(client: Client, unique_name: str) -> None:
    with pytest.raises(IllegalTransition) as raised:
        client.append("v1.partition.stale", unique_name)
    assert raised.value.allowed == ("v1.partition.requested", "v1.partition.observed")
    assert raised.value.subject == f"partition:{unique_name}"
    with pytest.raises(InvalidEvent):
        client.append("v1.partition.stale", unique_name, {"nonsense": 1})
    good, bad = observe(client, unique_name), client.make("v1.job.running", unique_name)
    results = client.append_batch([good, bad, observe(client, unique_name)])
    assert [type(result) for result in results] == [Receipt, IllegalTransition, Receipt]
    with pytest.raises(IllegalTransition):
        client.append_batch([observe(client, unique_name), bad], atomic=True)
    with pytest.raises(IndexConflict) as moved:
        client.append_batch([observe(client, unique_name)], at=0)
    assert moved.value.next_idx == client.status().next_idx


def test_a_client_that_was_closed_says_so(service: ServiceProcess) -> None:
    made = Client(service.url)
    ended: list[BaseException] = []
    began = threading.Event()

    def follow() -> None:
        try:
            for _ in made.follow_pages(0, EventFilter(partition_refs=("never",)), wait_s=1):
                began.set()
        except BelogError as error:
            ended.append(error)

    thread = threading.Thread(target=follow)
    thread.start()
    assert began.wait(20)
    made.close()
    thread.join(30)
    assert [type(error) for error in ended] == [Closed]
    with pytest.raises(Closed):
        made.status()


def test_nobody_there(tmp_path: Path) -> None:
    away = ServiceProcess("memory:", tmp_path)
    with Client(away.url, retry_s=0.3) as made, pytest.raises(Unavailable, match="running"):
        made.append("v1.partition.observed", "a")


# --- partitions


def make(client: Client, ref: str, build: str, index: int) -> Receipt:
    client.append(PartitionScheduled(build_request_id=build), ref, expected=index)
    client.append(PartitionBuilding(build_request_id=build), ref)
    return client.append(PartitionAvailable(build_request_id=build), ref)


def test_one_of_two_makes_a_partition_and_the_other_waits(client: Client, unique_name: str) -> None:
    ref = f"s3://lake/{unique_name}/a b#1%"
    assert client.partition(ref).state == ""
    first = client.request_partition(ref, client_id="one")
    assert isinstance(first, Building)
    again = client.request_partition(ref, build_request_id=first.build_request_id)
    assert again == first
    second = client.request_partition(ref, client_id="two")
    assert isinstance(second, Delegated)
    assert second.build_request_id == first.build_request_id
    with pytest.raises(NotOwner) as raised:
        client.request_partition(ref, allow_delegation=False)
    assert raised.value.owner == first.build_request_id

    waited = in_thread(lambda: client.wait(ref, timeout_s=20))
    asked = in_thread(lambda: client.request_partition(ref, client_id="three", timeout_s=20))
    eventually(lambda: client.partition(ref).row.requesting_clients == ["one", "two", "three"])
    receipt = make(client, ref, first.build_request_id, client.partition(ref).row.index)
    state = waited()
    assert state is not None
    assert (state.state, state.row.available_index) == ("available", receipt.index)
    answer = asked()
    assert isinstance(answer, Available)
    assert (answer.index, answer.log_id) == (receipt.index, client.status().log_id)
    assert client.wait(ref, ("failed",), timeout_s=0.2) is None


def in_thread(call: Callable[[], T]) -> Callable[[], T]:
    """Begin a call, and return what waits for its result."""
    results: list[T] = []
    thread = threading.Thread(target=lambda: results.append(call()))
    thread.start()

    def result() -> T:
        thread.join(30)
        assert results, "the call did not end well"
        return results[0]

    return result


# --- following


def test_the_asynchronous_client_does_the_same(
    service: ServiceProcess, unique_name: str, tmp_path: Path
) -> None:
    wanted = EventFilter(partition_patterns=(f"{unique_name}/*",))

    async def main() -> None:
        async with AsyncClient(service.url, spool=tmp_path / "spool") as made:
            start = (await made.status()).next_idx
            got: list[str] = []

            async def follow() -> Cursor:
                async for stored, cursor in made.follow(start, wanted):
                    got.append(stored.event.subject_id)
                    if len(got) == 3:
                        return cursor
                raise AssertionError

            following = asyncio.create_task(follow())
            await made.append(PartitionObserved(), f"{unique_name}/1")
            await made.append(PartitionObserved(), f"elsewhere/{unique_name}")
            await made.append_batch([made.make(PartitionObserved(), f"{unique_name}/2")])
            kept = await made.record(PartitionObserved(), f"{unique_name}/3")
            assert isinstance(kept, Receipt)
            cursor = await asyncio.wait_for(following, 20)
            assert got == [f"{unique_name}/{n}" for n in (1, 2, 3)]
            assert cursor.next_idx == kept.index + 1
            page = await made.events(start, wanted, limit=2)
            assert len(page.events) == 2
            assert (await made.events(page.cursor, wanted)).events[0].index == kept.index
            asked = await made.request_partition(f"{unique_name}/new")
            assert isinstance(asked, Building)
            assert (await made.partition(f"{unique_name}/3")).state == "available"
            assert await made.wait(f"{unique_name}/3", timeout_s=5) is not None
            assert (await made.readiness()).ok

    asyncio.run(main())


def test_a_follower_misses_nothing_and_sees_nothing_twice_over_restarts_and_pauses(
    own: ServiceProcess, seed: int
) -> None:
    draw = random.Random(seed)
    with Client(own.url, retry_s=30) as made:
        got: list[StoredEvent] = []
        troubles: list[BelogError] = []
        refs = [f"a/{n % 2}/{n}" for n in range(120)]
        wanted = EventFilter(partition_patterns=("a/1/*",))

        def follow() -> None:
            for stored, _ in made.follow(0, wanted, on_trouble=troubles.append):
                got.append(stored)
                if len(got) == 60:
                    return

        thread = threading.Thread(target=follow)
        thread.start()
        for n, ref in enumerate(refs):
            if n in {30, 80}:
                own.restart()
            if n == 55:
                own.signal(signal.SIGSTOP)
                threading.Timer(1.0, own.signal, [signal.SIGCONT]).start()
            made.append(PartitionObserved(), ref, event_id=draw.randbytes(16))
        thread.join(60)
        assert not thread.is_alive()
        assert [stored.event.subject_id for stored in got] == refs[1::2]
        assert troubles
        page = made.events(1)
        assert [stored.event.subject_id for stored in page.events] == refs


def test_a_service_that_is_slow_is_waited_for(own: ServiceProcess) -> None:
    with Client(own.url, retry_s=20, timeout_s=0.5) as made:
        event = observe(made, "a")
        own.signal(signal.SIGSTOP)
        threading.Timer(1.5, own.signal, [signal.SIGCONT]).start()
        # The request that was given up arrived, too: the event is there once.
        receipt = made.append_event(event)
        assert receipt.index == 1
        assert made.status().next_idx == 2


def backup(folder: Path, name: str) -> Path:
    """Copy a log as it is now."""
    with (
        closing(sqlite3.connect(folder / "log.db")) as source,
        closing(sqlite3.connect(folder / name)) as target,
    ):
        source.backup(target)
    return folder / name


def restore(own: ServiceProcess, folder: Path, name: str) -> None:
    """Exchange the log under a service, which is down meanwhile."""
    own.stop()
    for left in folder.glob("log.db*"):
        left.unlink()
    shutil.copy(folder / name, folder / "log.db")
    own.start()


@pytest.mark.parametrize("grows", [False, True], ids=["shorter", "rewritten"])
def test_a_log_that_was_restored_from_an_older_backup_is_refused(
    own: ServiceProcess, tmp_path: Path, *, grows: bool
) -> None:
    with Client(own.url, retry_s=20) as made:
        made.append(PartitionObserved(), "a")
        backup(tmp_path, "backup.db")
        for n in range(3):
            made.append(PartitionObserved(), f"b/{n}")
        cursor = made.events(0).cursor
        errors: list[BelogError] = []
        following = threading.Event()

        def follow() -> None:
            try:
                for page in made.follow_pages(0):
                    if page.cursor == cursor:
                        following.set()
            except BelogError as error:
                errors.append(error)

        thread = threading.Thread(target=follow)
        thread.start()
        assert following.wait(20)
        restore(own, tmp_path, "backup.db")
        if grows:
            # Another client, which knows nothing of what was there.
            with Client(own.url) as other:
                other.append_batch([observe(other, f"c/{n}") for n in range(9)])
        thread.join(30)
        expected = {LogReplaced, LogTruncated} if grows else {LogTruncated}
        assert {type(error) for error in errors} <= expected
        assert errors
        with pytest.raises(LogReplaced if grows else LogTruncated, match="backup"):
            made.events(cursor)


def test_another_log_behind_the_url_is_refused(own: ServiceProcess, tmp_path: Path) -> None:
    with Client(own.url) as made:
        made.append(PartitionObserved(), "a")
        cursor = made.events(0).cursor
        own.stop()
        for left in tmp_path.glob("log.db*"):
            left.unlink()
        own.start()
        with pytest.raises(LogReplaced, match="made anew"):
            made.events(cursor)


# --- spool


def test_a_build_goes_on_while_the_log_is_away(own: ServiceProcess, tmp_path: Path) -> None:
    refused: list[tuple[str, str]] = []
    with Client(
        own.url,
        spool=tmp_path / "spool",
        on_conflict=lambda event, error: refused.append((event.subject_id, error.code)),
    ) as made:
        assert isinstance(made.record(PartitionObserved(), "a"), Receipt)
        with pytest.raises(IllegalTransition):
            made.record("v1.partition.building", "a", {"build_request_id": "b"})
        own.kill()
        kept = [made.record(PartitionObserved(), f"a/{n}") for n in range(20)]
        made.record(PartitionFailed(build_request_id="b"), "a")
        assert all(isinstance(result, Spooled) for result in kept)
        assert made.flush(0.1).left == 21
        own.start()
        assert made.flush(20).left == 0
        assert refused == [("a", "illegal_transition")]
        subjects = [stored.event.subject_id for stored in made.events(1).events]
        assert subjects == ["a", *(f"a/{n}" for n in range(20))]


# --- subscriptions


def test_a_subscription_reacts_once_to_each_event_whenever_it_dies(
    client: Client, unique_name: str, tmp_path: Path
) -> None:
    client.append_batch([observe(client, f"{unique_name}/{n}") for n in range(6)])
    wanted = EventFilter(partition_patterns=(f"{unique_name}/*",))

    class Died(Exception):
        pass

    def handle(subscription: Subscription, stored: StoredEvent, *, dies: bool) -> None:
        target = f"copy-of-{stored.event.subject_id}"
        event = client.make(
            PartitionObserved(),
            target,
            event_id=subscription.reaction_id(stored),
            caused_by=stored.event.event_id,
        )
        subscription.append_once(client, event)
        if dies and stored.event.subject_id.endswith(("2", "4")):
            raise Died

    for dies in (True, False, True, False):
        with CursorFile(tmp_path / "cursor") as file:
            made = Subscription(client, file, wanted)
            try:
                made.run(lambda s, m=made, d=dies: handle(m, s, dies=d), idle_s=0)  # type: ignore[misc]
            except Died:
                continue
    copies = client.events(0, EventFilter(partition_patterns=(f"copy-of-{unique_name}/*",))).events
    assert [c.event.subject_id for c in copies] == [f"copy-of-{unique_name}/{n}" for n in range(6)]
    with CursorFile(tmp_path / "cursor") as file:
        assert file.load() is not None
        with pytest.raises(Unavailable, match="another process"):
            CursorFile(tmp_path / "cursor")
