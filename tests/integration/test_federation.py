"""Two instances: one owns partitions, the other asks for them and follows what becomes of them."""

import shutil
import signal
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from belog.client import Available, Building, Client, Delegated
from belog.schemas.errors import (
    BelogError,
    Conflict,
    LogTruncated,
    Misconfigured,
    NotOwner,
    Unavailable,
)
from belog.schemas.events import (
    Manifest,
    PartitionAvailable,
    PartitionBuilding,
    PartitionFailed,
    PartitionObserved,
    PartitionRemoved,
    PartitionRequested,
    PartitionScheduled,
    PartitionStale,
)
from belog.schemas.filters import EventFilter
from belog.storage import open_log
from belog.storage.kafka_topic import create_topic
from tests.integration.test_readiness import working
from tests.servers import Broker, Redis, eventually
from tests.service_process import ServiceProcess

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

REACTION_S = 1.0
"""What SPEC promises a subscriber; a machine that is busy with other tests is given more."""

Site = tuple[str, str]
"""The URIs of a log and of its tables."""


def in_files(folder: Path, name: str) -> Site:
    return f"sqlite:///{folder}/{name}.db", "memory:"


class Pair:
    """An upstream that owns `up/**`, and a downstream that follows it."""

    def __init__(self, folder: Path, up: Site | None = None, down: Site | None = None) -> None:
        self.folder = folder
        up_log, up_tables = up or in_files(folder, "up")
        down_log, down_tables = down or in_files(folder, "down")
        self.up = ServiceProcess(up_log, folder, **{"tables.uri": up_tables})
        self.down = ServiceProcess(down_log, folder, **{"tables.uri": down_tables})
        self.name("up")
        self.there = Client(self.up.url, retry_s=20)
        self.here = Client(self.down.url, retry_s=20)

    def name(self, name: str) -> None:
        """Give the upstream a name in the configuration of the downstream's next start."""
        self.down.configure(
            f'[federation.upstreams.{name}]\nurl = "{self.up.url}"\n'
            'patterns = ["up/**", "round/**"]\n'
        )

    def go_round(self) -> None:
        """Let each own `round/**` by the word of the other, from the upstream's next start on."""
        self.up.configure(
            f'[federation.upstreams.down]\nurl = "{self.down.url}"\npatterns = ["round/**"]\n'
        )

    def follows(self) -> None:
        """Wait until the upstream is followed."""
        eventually(lambda: "v1.federation.cursor_moved" in self.types(), timeout_s=20)

    def types(self, ref: str | None = None) -> list[str]:
        """The types of the downstream's events, or of those of a partition."""
        wanted = EventFilter()
        if ref is not None:
            wanted = EventFilter(partition_refs=(ref,), subject_kinds=("partition",))
        return [stored.event.event_type for stored in self.here.events(1, wanted).events]

    def make(self, ref: str, build: str) -> int:
        """Have the upstream make what was asked of it."""
        self.there.append(PartitionScheduled(build_request_id=build), ref)
        self.there.append(PartitionBuilding(build_request_id=build), ref)
        manifest = Manifest(outputs=[ref], row_count=7, metadata={"a": "b"})
        made = PartitionAvailable(build_request_id=build, manifest=manifest)
        return self.there.append(made, ref).index

    def close(self) -> None:
        self.there.close()
        self.here.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    pair = Pair(tmp_path_factory.mktemp("pair"))
    pair.go_round()
    with pair.up, pair.down:
        pair.follows()
        yield pair
    pair.close()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    with made.up, made.down:
        made.follows()
        yield made
    made.close()


def test_what_the_upstream_has_is_available_with_its_index(shared: Pair) -> None:
    ref = "up/there"
    manifest = Manifest(outputs=[ref], row_count=7)
    index = shared.there.append(PartitionObserved(manifest=manifest), ref).index
    answer = shared.here.request_partition(ref, client_id="me")
    assert isinstance(answer, Available)
    assert (answer.index, answer.log_id) == (index, shared.there.status().log_id)
    assert answer.manifest is not None
    assert answer.manifest.row_count == 7
    # Nothing is delegated, so nothing is said here.
    assert shared.here.partition(ref).state == ""


def test_what_the_upstream_makes_is_delegated_and_follows_it(shared: Pair) -> None:
    ref = "up/made"
    with ThreadPoolExecutor(20) as threads:
        answers = list(
            threads.map(lambda n: shared.here.request_partition(ref, client_id=f"c{n}"), range(20))
        )
    assert all(isinstance(answer, Delegated) for answer in answers)
    (build,) = {a.build_request_id for a in answers if isinstance(a, Delegated)}
    (log_id,) = {a.log_id for a in answers if not isinstance(a, Building)}
    assert log_id == shared.there.status().log_id
    assert shared.there.partition(ref).row.job_graph_run_id == build
    here = shared.here.partition(ref)
    assert here.state == "delegated"
    assert set(here.row.requesting_clients) == {f"c{n}" for n in range(20)}
    assert shared.types(ref)[:2] == ["v1.partition.requested", "v1.partition.delegated"]
    with pytest.raises(NotOwner):
        shared.here.request_partition(ref, allow_delegation=False)
    waiting = threading.Event()
    waited: list[object] = []

    def wait() -> None:
        waiting.set()
        waited.append(shared.here.request_partition(ref, client_id="c0", timeout_s=30))

    thread = threading.Thread(target=wait)
    thread.start()
    waiting.wait()
    index = shared.make(ref, build)
    state = shared.here.wait(ref, timeout_s=20)
    assert state is not None
    assert state.row.manifest.metadata == {"a": "b"}
    thread.join(30)
    assert isinstance(waited[0], Available)
    assert waited[0].index == index
    last = shared.here.events(1, EventFilter(partition_refs=(ref,))).events[-1].event
    cause = shared.there.event(index)
    assert cause is not None
    assert last.caused_by in {None, cause.event.event_id}


def test_later_changes_are_followed_within_a_second(shared: Pair) -> None:
    ref = "up/later"
    first = shared.here.request_partition(ref, client_id="me")
    assert isinstance(first, Delegated)
    shared.there.append(
        PartitionFailed(build_request_id=first.build_request_id, reason="disk"), ref
    )
    state = shared.here.wait(ref, ("failed",), timeout_s=20)
    assert state is not None
    assert state.row.reason == "disk"
    times: list[float] = []
    for payload, name in (
        (PartitionObserved(), "available"),
        (PartitionStale(reason="old"), "stale"),
        (PartitionRemoved(), "removed"),
        (PartitionObserved(), "available"),
    ):
        index = shared.there.append(payload, ref).index
        assert shared.here.wait(ref, (name,), timeout_s=20) is not None
        newest = shared.here.events(1, EventFilter(partition_refs=(ref,))).events[-1]
        cause = shared.there.event(index)
        assert cause is not None
        assert newest.event.caused_by == cause.event.event_id
        times.append((newest.created_at - cause.created_at) / 1e6)
    assert min(times) < REACTION_S
    again = shared.here.request_partition("up/later2", client_id="me")
    assert isinstance(again, Delegated)
    shared.there.append(PartitionFailed(build_request_id=again.build_request_id), "up/later2")
    eventually(lambda: shared.here.partition("up/later2").state == "failed", timeout_s=20)
    anew = shared.here.request_partition("up/later2", client_id="me")
    assert isinstance(anew, Delegated)
    assert anew.build_request_id != again.build_request_id


def test_who_waits_is_told_that_it_failed(shared: Pair) -> None:
    ref = "up/fails"
    first = shared.here.request_partition(ref, client_id="me")
    assert isinstance(first, Delegated)
    threading.Timer(
        0.5,
        shared.there.append,
        (PartitionFailed(build_request_id=first.build_request_id, reason="disk"), ref),
    ).start()
    with pytest.raises(Conflict, match="disk"):
        shared.here.request_partition(ref, client_id="me", timeout_s=20)


def test_the_build_that_asks_owns_the_attempt_here_and_others_join_it(shared: Pair) -> None:
    ref = "up/named"
    first = shared.here.request_partition(ref, client_id="me", build_request_id="nightly")
    assert isinstance(first, Delegated)
    # Each instance has builds of its own: the upstream's has an id of its own.
    assert first.build_request_id not in {"nightly", ""}
    assert shared.there.partition(ref).row.job_graph_run_id == first.build_request_id
    assert shared.here.partition(ref).row.job_graph_run_id == "nightly"
    for build in ("nightly", "weekly", "weekly"):
        again = shared.here.request_partition(ref, client_id="me", build_request_id=build)
        assert isinstance(again, Delegated)
        assert again.build_request_id == first.build_request_id
    assert [name.rpartition(".")[2] for name in shared.types(ref)] == [
        "requested",
        "delegated",
        "joined",
    ]
    summary = shared.here.explain(ref).summary
    assert "in build nightly (received): " in summary
    assert summary.endswith(f"{first.build_request_id} of {first.log_id} (upstream up)")
    shared.make(ref, first.build_request_id)
    assert shared.here.wait(ref, timeout_s=20) is not None
    explained = shared.here.explain(ref)
    assert explained.summary == "available: made by build nightly"
    assert "of upstream up, log " in explained.causes[0].reason


def test_a_request_that_is_repeated_writes_nothing(shared: Pair) -> None:
    ref = "up/repeated"
    for _ in range(3):
        answer = shared.here.request_partition(ref, build_request_id="again")
        assert isinstance(answer, Delegated)
    events = shared.here.events(1, EventFilter(partition_refs=(ref,))).events
    assert [stored.event.event_type for stored in events] == [
        "v1.partition.requested",
        "v1.partition.delegated",
        "v1.build.received",
    ]
    owner = shared.here.partition(ref).row
    assert events[-1].event.subject_id == owner.job_graph_run_id == "again"
    assert list(owner.requesting_clients) == [events[-1].event.body()["client_id"]] != [""]


def test_an_attempt_of_who_asked_the_log_itself_is_his_own(shared: Pair) -> None:
    for name, steps in (("asked", ()), ("building", (PartitionScheduled, PartitionBuilding))):
        ref, build = f"up/direct-{name}", f"direct-{name}"
        shared.here.append(PartitionRequested(build_request_id=build), ref)
        for step in steps:
            shared.here.append(step(build_request_id=build), ref)
        for client in ("me", "me", "you"):
            answer = shared.here.request_partition(ref, client_id=client)
            assert isinstance(answer, Delegated)
            assert answer.build_request_id == build
            assert answer.log_id == shared.here.status().log_id
        with pytest.raises(NotOwner, match=build):
            shared.here.request_partition(ref, allow_delegation=False)
        assert shared.there.partition(ref).state == ""
        # Somebody asks the upstream itself: that moves nothing here.
        assert isinstance(shared.there.request_partition(ref), Building)
        assert isinstance(shared.here.request_partition(ref, client_id="them"), Delegated)
        assert "v1.partition.delegated" not in shared.types(ref)
        mine = shared.here.request_partition(ref, build_request_id=build)
        assert isinstance(mine, Building if steps else Delegated)
        assert ("v1.partition.delegated" in shared.types(ref)) == (not steps)
        # Whoever died before he could say that the build is there, is helped out.
        assert shared.here.build(build).build.state == "received"


def test_without_delegation_nothing_is_begun_at_an_upstream(shared: Pair) -> None:
    ref = "up/alone"
    with pytest.raises(Conflict, match="only the upstream up makes it") as refused:
        shared.here.request_partition(ref, allow_delegation=False)
    assert refused.value.state == ""
    assert shared.there.partition(ref).state == shared.here.partition(ref).state == ""
    assert isinstance(shared.there.request_partition(ref, build_request_id="theirs"), Building)
    with pytest.raises(NotOwner, match="build 'theirs' of upstream up") as owned:
        shared.here.request_partition(ref, allow_delegation=False)
    assert owned.value.owner == "theirs"
    index = shared.make(ref, "theirs")
    found = shared.here.request_partition(ref, allow_delegation=False)
    assert isinstance(found, Available)
    assert found.index == index
    assert shared.here.partition(ref).state == ""


def test_instances_that_own_by_each_others_word_are_told_of_their_circle(shared: Pair) -> None:
    def both_follow() -> bool:
        up = shared.there.events(0, EventFilter(subject_kinds=("system",))).events
        return any(stored.event.event_type == "v1.federation.cursor_moved" for stored in up)

    eventually(both_follow, timeout_s=20)
    up, down = (client.status().log_id for client in (shared.there, shared.here))
    # From both sides at once, too: neither may wait for the other's own request.
    with ThreadPoolExecutor(8) as threads:
        asked = {
            threads.submit(client.request_partition, f"round/{n}"): around
            for n in range(2)
            for client, around in (
                (shared.here, f"{down} → {up} → {down}"),
                (shared.there, f"{up} → {down} → {up}"),
            )
        }
        for one, around in asked.items():
            error = one.exception(30)
            assert isinstance(error, Misconfigured), repr(error)
            assert around in error.message
            assert "upstream up was asked" in error.hint
            assert "upstream down was asked" in error.hint
    assert shared.here.partition("round/0").state == ""


def test_own_partitions_are_not_asked_of_others(shared: Pair) -> None:
    assert isinstance(shared.here.request_partition("mine/1"), Building)
    assert shared.there.partition("mine/1").state == ""


def test_an_upstream_that_is_killed_slow_or_failing_is_followed_again(pair: Pair) -> None:
    refs = [f"up/{n}" for n in range(5)]
    builds: dict[str, str] = {}
    for ref in refs:
        answer = pair.here.request_partition(ref, client_id="me")
        assert isinstance(answer, Delegated)
        builds[ref] = answer.build_request_id
    pair.up.kill()
    with Client(pair.down.url, retry_s=0) as impatient, pytest.raises(Unavailable):
        impatient.request_partition("up/other")
    assert pair.here.readiness().ok
    pair.up.start()
    pair.make(refs[0], builds[refs[0]])
    assert pair.here.wait(refs[0], timeout_s=20) is not None
    # The downstream dies, and misses what happens meanwhile.
    pair.down.kill()
    pair.make(refs[1], builds[refs[1]])
    pair.down.start()
    assert pair.here.wait(refs[1], timeout_s=20) is not None
    # Slow, for longer than an answer may take it.
    pair.up.signal(signal.SIGSTOP)
    threading.Timer(2.0, pair.up.signal, [signal.SIGCONT]).start()
    pair.make(refs[2], builds[refs[2]])
    assert pair.here.wait(refs[2], timeout_s=20) is not None
    pair.make(refs[3], builds[refs[3]])
    assert pair.here.wait(refs[3], timeout_s=20) is not None
    # Under another name it is followed from its end on; what is delegated is not forgotten.
    pair.down.kill()
    pair.make(refs[4], builds[refs[4]])
    pair.name("anew")
    pair.down.start()
    assert pair.here.wait(refs[4], timeout_s=20) is not None
    for ref in refs:
        assert pair.types(ref) == [
            f"v1.partition.{name}" for name in ("requested", "delegated", "available")
        ]


def test_an_upstream_that_was_restored_from_an_older_backup_is_refused(pair: Pair) -> None:
    pair.there.append(PartitionObserved(), "up/old")

    def back_up(name: str) -> None:
        with (
            closing(sqlite3.connect(pair.folder / "up.db")) as source,
            closing(sqlite3.connect(pair.folder / name)) as target,
        ):
            source.backup(target)

    back_up("backup.db")
    first = pair.here.request_partition("up/new", client_id="me")
    assert isinstance(first, Delegated)
    for n in range(3):
        pair.there.append(PartitionObserved(), f"up/{n}")
    newest = pair.there.status().next_idx
    pair.make("up/new", first.build_request_id)
    assert pair.here.wait("up/new", timeout_s=20) is not None
    assert newest
    back_up("right.db")
    pair.up.stop()

    def put(name: str) -> None:
        for left in pair.folder.glob("up.db*"):
            left.unlink()
        shutil.copy(pair.folder / name, pair.folder / "up.db")
        pair.up.start()

    def reasons() -> str:
        return " ".join(pair.here.readiness().reasons)

    put("backup.db")
    eventually(lambda: "backup" in reasons(), "readiness says so", timeout_s=40)
    assert "upstream up" in reasons()
    before = pair.types("up/new")
    for _ in range(2):
        with pytest.raises(LogTruncated, match="backup") as refused:
            pair.here.request_partition("up/new", client_id="me")
        assert refused.value.hint.count("the upstream up was asked") == 1
    assert "was asked" not in reasons()
    # The right log is put back: it goes on by itself.
    pair.up.stop()
    put("right.db")
    eventually(lambda: not reasons(), "it is followed again", timeout_s=40)
    assert isinstance(pair.here.request_partition("up/new", client_id="me"), Available)
    assert pair.types("up/new") == before
    pair.up.stop()
    put("backup.db")
    eventually(lambda: "backup" in reasons(), "it is refused again", timeout_s=40)
    # Nor after a restart, which forgets nothing; nor when it has grown past the cursor.
    pair.down.kill()
    with Client(pair.up.url) as other:
        other.append_batch([other.make(PartitionObserved(), f"up/x{n}") for n in range(40)])
    pair.down.start()
    eventually(lambda: "backup" in reasons(), "readiness says so again", timeout_s=40)
    with pytest.raises(BelogError, match="backup"):
        pair.here.request_partition("up/x1", client_id="me")
    assert pair.types("up/new") == before
    # Somebody has decided.
    pair.down.kill()
    pair.name("anew")
    pair.down.start()
    assert isinstance(pair.here.request_partition("up/x1", client_id="me"), Available)
    assert pair.here.readiness().ok


def test_instances_on_kafka_and_redis_go_on_over_a_restart_of_the_upstream(
    broker: Broker, redis_server: Redis, topic_name: str, redis_prefix: str, tmp_path: Path
) -> None:
    sites: list[Site] = []
    with ExitStack() as stack:
        for name in ("up", "down"):
            log = f"{broker.uri}/{topic_name}-{name}"
            tables = f"{redis_server.uri}?prefix={redis_prefix}{name}:"
            create_topic(log)
            with open_log(log) as made:
                made.initialize()
            stack.enter_context(working(log, tables))
            sites.append((log, tables))
        pair = Pair(tmp_path, *sites)
        stack.callback(pair.close)
        stack.enter_context(pair.up)
        stack.enter_context(pair.down)
        pair.follows()
        made_before, made_after = "up/before", "up/after"
        there = pair.there.append(PartitionObserved(), "up/there").index
        found = pair.here.request_partition("up/there", client_id="me")
        assert isinstance(found, Available)
        assert (found.index, found.log_id) == (there, pair.there.status().log_id)
        builds: dict[str, str] = {}
        for ref in (made_before, made_after):
            # Others ask at the same moment; one build comes of it there.
            with ThreadPoolExecutor(8) as threads:
                asked = [
                    threads.submit(pair.here.request_partition, ref, client_id=f"c{n}")
                    for n in range(8)
                ]
                answers = [one.result() for one in asked]
            assert all(isinstance(answer, Delegated) for answer in answers)
            (builds[ref],) = {a.build_request_id for a in answers if isinstance(a, Delegated)}
            state = pair.there.partition(ref)
            assert (state.state, state.row.job_graph_run_id) == ("requested", builds[ref])
        pair.make(made_before, builds[made_before])
        assert pair.here.wait(made_before, timeout_s=20) is not None
        subscribed = pair.here.events(1, EventFilter(partition_refs=(made_after,))).cursor
        pair.up.kill()
        pair.up.start()
        index = pair.make(made_after, builds[made_after])
        ended = pair.here.wait(made_after, timeout_s=30)
        assert ended is not None
        assert ended.row.manifest.row_count == 7
        answer = pair.here.request_partition(made_after, client_id="me")
        assert isinstance(answer, Available)
        assert answer.index == index
        wanted = EventFilter(partition_refs=(made_after,))
        (after,) = [stored for stored, _ in pair.here.follow(subscribed, wanted, idle_s=0)]
        assert after.event.event_type == "v1.partition.available"
        for ref in builds:
            begun, delegated, *joined, last = pair.types(ref)
            assert [begun, delegated, last] == [
                f"v1.partition.{name}" for name in ("requested", "delegated", "available")
            ]
            assert set(joined) == {"v1.partition.joined"}
        assert pair.here.readiness().ok
