"""What users see of faults of a broker, of Redis and of workers, and how each heals.

The servers are one broker and one Redis, each behind a proxy. `tests.chaos.test_faults` says where
the test of every fault is.
"""

import json
import random
import time
import uuid
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from belog.producers import Producer
from belog.schemas.envelope import encode_event
from belog.schemas.errors import LogTruncated, OutcomeUnknown, Unavailable, WrongLog
from belog.storage import Receipt, open_log
from tests.chaos.faults.records import write_raw
from tests.chaos.faults.tables import keep_dump, restore_dump
from tests.chaos.faults.topics import go_back, set_aside
from tests.chaos.site import LIST, OBSERVED, READY, Site, injected, open_site
from tests.chaos.systems import Servers
from tests.chaos.test_faults_service import answer, observed
from tests.e2e.test_serve import serving
from tests.examples import event
from tests.servers import eventually

pytestmark = [pytest.mark.chaos, pytest.mark.integration, pytest.mark.timeout(300)]

CLEAR_S = 30.0
"""In so long a user has been told that a server does not answer: ten, and a busy machine's time."""

WORKER_LINES_MAX = 400
"""Lines of a worker over two outages; without care some thousand."""


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    with Servers() as servers:
        yield servers


@pytest.fixture
def site(servers: Servers, tmp_path: Path) -> Generator[Site]:
    with open_site(servers, tmp_path) as site:
        yield site


@contextmanager
def producer_of(uri: str, wait_s: float = 5) -> Generator[Producer]:
    """A producer that stays over what befalls its log."""
    with open_log(uri) as log:
        log.initialize()
        with Producer(log, actor="x", wait_s=wait_s) as producer:
            yield producer


def append(producer: Producer, n: int) -> Receipt:
    return producer.append_event(event("v1.partition.observed", n=n))


def retried(producer: Producer, n: int) -> Receipt:
    """Append, also while clients find out that the broker is back."""
    return eventually(
        lambda: append(producer, n),
        "an append is answered",
        ignoring=(OutcomeUnknown, Unavailable),
    )


def test_redis_away_or_silent_or_flushed(site: Site) -> None:
    site.work()
    name = site.tables_uri
    site.redis_gate.refuse()
    status, listed, appended = site.told_each(["status"], LIST, OBSERVED)
    for done in (status, listed):
        assert (done.code, done.out) == (5, "")
        assert done.err == (
            f"error: Redis does not answer: Error 111 connecting to 127.0.0.1:"
            f"{site.redis_gate.port}. Connection refused. (log {name})\n"
        )
    assert appended.ok().out.startswith("accepted at index ")
    assert site.until_said("unavailable")["error"].startswith("Redis does not answer: ")
    site.redis_gate.heal()
    site.until_said("available")
    site.until_whole()

    site.redis_gate.hold()
    began = time.monotonic()
    done = site.told("status")
    assert time.monotonic() - began < CLEAR_S
    assert (done.code, done.out) == (5, "")
    assert done.err == f"error: Redis does not answer: Timeout reading from socket (log {name})\n"
    site.redis_gate.heal()

    site.worker.stop_signal()
    with injected("redis-flushed", site.deployment):
        done = site.told("status")
    assert (done.code, done.out) == (4, "")
    assert done.err == (
        f"error: there are no tables at {name} (log {site.log_uri})"
        " — start a worker, or use --tables memory:\n"
    )
    site.worker.cont()
    site.until_whole()


def test_tables_behind_their_log(site: Site) -> None:
    site.work()
    keep_dump(site.redis)
    index = site.append()
    site.until_whole()
    with injected("worker-frozen", site.deployment):
        site.redis.kill()
        restore_dump(site.redis)
        site.redis.start()
        ready, status = site.told_each(READY, ["status", "--json"])
        assert (ready.code, ready.out) == (5, "")
        assert ready.err == (
            f"error: the tables stand at {index}, the log ends at {index + 1}"
            f" (log {site.log_uri}) — is a worker running? see its log\n"
        )
        shown = status.ok().json()[0]
        assert (shown["applied"], shown["lag_records"]) == (index, 1)
    site.until_whole()
    assert site.told(*READY).code == 0


def test_a_broker_away_or_silent(site: Site) -> None:
    site.work()
    says = (
        f"error: no answer from 127.0.0.1:{site.broker_gate.port}: Failed to get metadata:"
        f" Local: Broker transport failure (log {site.log_uri})"
        " — is the broker running, and do host, port and security settings fit?\n"
    )
    retry = [*OBSERVED, "--event-id", str(uuid.uuid4())]
    site.broker_gate.refuse()
    for done in site.told_each(["status"], LIST, retry):
        assert (done.code, done.out, done.err) == (5, "", says)
    site.until_said("unavailable")
    site.broker_gate.heal()
    site.until_said("available")
    site.broker_gate.hold()
    began = time.monotonic()
    done = site.told(*retry)
    assert time.monotonic() - began < CLEAR_S
    assert (done.code, done.out, done.err) == (5, "", says)
    site.broker_gate.heal()
    # The same command, typed again, writes it once, however often.
    first, again = (site.told(*retry, "--json").ok().json()[0] for _ in range(2))
    assert (first["duplicate"], again["duplicate"]) == (False, True)
    assert first["index"] == again["index"] == site.end() - 1
    site.until_whole()
    lines = site.worker.errors_path.read_text().splitlines()
    assert len(lines) < WORKER_LINES_MAX, "what client libraries say hides what the worker says"


def test_a_service_whose_broker_is_away(site: Site) -> None:
    asked = observed(uuid.uuid4())
    uri = f"{site.log_uri}?delivery.timeout.ms=1500"
    with serving(site.folder, ["--log", uri]) as service:

        def ready(wanted: int) -> str | None:
            status, text = answer(f"{service.url}/readyz")
            return text if status == wanted else None

        eventually(lambda: ready(200), "it is ready", timeout_s=60)
        site.broker_gate.refuse()
        status, text = answer(f"{service.url}/events", asked)
        assert (status, json.loads(text)["code"]) == (504, "outcome_unknown")
        why = eventually(lambda: ready(503), "it is not ready", timeout_s=60)
        assert f"127.0.0.1:{site.broker_gate.port}" in str(why)
        metrics = answer(f"{service.url}/metrics")[1]
        assert "\nbelog_ready 0" in metrics
        site.broker_gate.heal()
        eventually(lambda: ready(200), "it is ready again", timeout_s=90)
        status, text = answer(f"{service.url}/events", asked)
        assert status == 200, text
        assert answer(f"{service.url}/events/{asked['event_id']}")[0] == 200


def test_an_answer_that_is_lost_is_unknown_and_a_retry_tells(site: Site) -> None:
    uri = f"{site.log_uri}?delivery.timeout.ms=1500"
    with producer_of(uri, wait_s=1) as producer:
        append(producer, 1)
        before = site.end()
        site.broker_gate.hold("down")
        with pytest.raises(OutcomeUnknown) as caught:
            append(producer, 2)
        assert str(caught.value) == (
            f"no acknowledgement: Local: Message timed out (log {site.log_uri})"
            f" — append it again with event_id {2:032x}: the answer will be exact"
        )
        site.broker_gate.heal()
        receipt = retried(producer, 2)
        assert (receipt.index, receipt.duplicate) == (before, True)


@pytest.mark.parametrize("trouble", ["connections-delayed", "connections-throttled"])
def test_a_slow_network_only_slows(site: Site, trouble: str, seed: int) -> None:
    site.deployment.gates = {"broker": site.broker_gate}
    with (
        producer_of(site.log_uri) as producer,
        injected(trouble, site.deployment, random.Random(seed)),
    ):
        sent = [producer.submit_event(event("v1.partition.observed", n=n)) for n in range(1, 30)]
        first = sent[0].result().index
        assert [pending.result().index for pending in sent] == list(range(first, first + 29))


def test_a_broker_with_an_older_data_directory(site: Site) -> None:
    site.work()
    with producer_of(site.log_uri) as producer:
        kept = append(producer, 1).index + 1
        site.broker.kill()
        set_aside(site.broker)
        site.broker.start()
        for n in range(2, 5):
            retried(producer, n)
        site.until_whole()
        site.broker.kill()
        go_back(site.broker)
        site.broker.start()
        assert site.end() == kept
        lost = f"the log ends at {kept}, and reached {kept + 3} before (log {site.log_uri}, index"
        lost += f" {kept}) — acknowledged events were lost: compare with a replica or a snapshot"
        with pytest.raises(LogTruncated) as caught:
            retried(producer, 5)
        assert str(caught.value) == lost
    ahead = (
        f"error: the log ends at {kept}, the tables are at {kept + 3} (log {site.log_uri}, index"
        f" {kept + 3}) — acknowledged events were lost: find them, or rebuild the tables"
        " (belog replay)"
    )
    # Which it says depends on whether it had asked the broker for the end that was lost.
    assert site.until_worker_ended() in {f"error: {lost}", ahead}
    # It does not go on by itself: a person decides what becomes of the events that were lost.
    site.worker.start()
    assert site.until_worker_ended() == ahead
    site.told("replay").ok()
    site.work()


def test_a_topic_deleted_and_made_anew(site: Site) -> None:
    site.work()
    with open_log(site.log_uri) as log:
        log.initialize()
        with (
            injected("topic-recreated", site.deployment),
            pytest.raises(WrongLog, match="compare log ids before reopening"),
        ):
            eventually(lambda: log.read(0).next_idx < 0, "a reader sees", ignoring=(Unavailable,))
    last = site.until_worker_ended()
    assert last.startswith("error: the topic was deleted")
    assert last.endswith(
        f"(log {site.log_uri}) — do not go on: the log that was open is gone; compare log ids"
        " before reopening"
    )
    ready = site.told(*READY)
    assert (ready.code, ready.out) == (1, "")
    assert ready.err.startswith(f"error: the tables at {site.tables_uri} are of log ")
    assert ", and there is no log yet" in ready.err
    empty = site.told("status")
    assert (empty.code, empty.out) == (4, "")
    assert empty.err == (
        f"error: there is no log yet (log {site.log_uri}) — append to it, or mend the URI\n"
    )
    site.append()
    listed = site.told(*LIST)
    assert listed.code == 1
    assert listed.err.startswith(f"error: the tables at {site.tables_uri} are of log ")
    assert listed.err.endswith(" — name a prefix per log: redis://…?prefix=NAME\n")
    site.work()


def test_a_topic_that_a_late_writer_reached_first(site: Site) -> None:
    topic = site.deployment.topic or ""
    with injected("topic-recreated", site.deployment):
        late = encode_event(event("v1.partition.observed", n=1))
        write_raw(site.broker.bootstrap, topic, [late], b"late")
    done = site.told(*OBSERVED)
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        f"error: the topic holds records, and none of them begins a log (log {site.log_uri})"
        " — name an empty topic\n"
    )


def test_records_of_others(site: Site, seed: int) -> None:
    site.work()
    rng = random.Random(seed)
    with (
        injected("garbage-records", site.deployment, rng),
        injected("oversize-records", site.deployment, rng),
    ):
        site.append()
    site.until_whole()
    shown = site.told("stats", "--json").ok().json()[0]
    assert int(str(shown["events"])) + int(str(shown["void"])) == site.end()
    assert int(str(shown["events"])) >= 4


def test_a_record_of_newer_software_and_compaction(site: Site) -> None:
    site.work()
    with injected("newer-record", site.deployment):
        at = site.end() - 1
        says = (
            "error: record has an envelope schema that is not known here: 0707070707070707"
            f" (index {at}) — read this log with a newer belog"
        )
        ready, *answers = site.told_each(READY, OBSERVED, ["events"])
        for done in answers:
            assert (done.code, done.err) == (1, f"{says}\n")
        assert (ready.code, ready.out) == (5, "")
        assert ready.err.startswith(f"error: the tables stand at {at}, the log ends at {at + 1}")
        assert site.until_worker_ended() == says
    # Compaction, as fast as the broker can, took that record out. The rest stands where it was.
    assert site.append() > at
    site.work()
    listed = site.told("events", "--json").ok().json()
    assert [row["index"] for row in listed] == [0, 1, site.end() - 1]
