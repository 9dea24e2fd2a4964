"""Real input, from the command line into a log: Our World in Data's history and graphs of builds.

A part of both is in `tests/data/owid`. `--owid DIR` runs the whole instead: a folder with
`snapshot-history.tsv.gz`, `dag/*.yml` and, if there is one, `final-live.txt.gz`, a list of the refs
that must be live at the end, from another source.
"""

import csv
import functools
import gzip
import random
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from belog.processors.memory_tables import MemoryTables
from belog.processors.replay import Until, replay_into
from belog.processors.rows import PartitionRow
from belog.processors.table_fold import TableFold
from belog.producers.coordination import Building
from belog.producers.graph import GraphReport
from belog.service.dag_run import Answered, publish_graphs
from belog.storage import EventLog, open_log
from belog.storage.kafka_topic import create_topic
from tests.e2e.program import belog, running
from tests.producing import Judgement
from tests.servers import Broker, eventually

pytestmark = [pytest.mark.e2e, pytest.mark.integration, pytest.mark.timeout(900)]

PROCESSES = 4
MOMENTS = 20
"""Commit times of a history at which its past is looked at."""
SHOWN_MOMENTS = 2
"""Those of them that are asked for on the command line, too."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.fixture
def owid(request: pytest.FixtureRequest) -> Path:
    given = request.config.getoption("--owid")
    return Path(given) if given else Path(__file__).parents[1] / "data" / "owid"


@pytest.fixture(params=["sqlite", "kafka"])
def uri(request: pytest.FixtureRequest, tmp_path: Path, topic_name: str) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/owid.db"
    broker: Broker = request.getfixturevalue("broker")
    create_topic(made := f"{broker.uri}/{topic_name}")
    return made


@contextmanager
def opened(uri: str) -> Iterator[EventLog]:
    with open_log(uri) as log:
        log.initialize()
        yield log


def live_refs(owid: Path) -> set[str]:
    """Count what a history leaves live: the last change of each ref wins."""
    with gzip.open(owid / "snapshot-history.tsv.gz", "rt", encoding="utf-8", newline="") as file:
        last = {row["path"]: row["change"] for row in csv.DictReader(file, delimiter="\t")}
    live = {ref for ref, change in last.items() if change != "D"}
    oracle = owid / "final-live.txt.gz"
    if oracle.exists():
        with gzip.open(oracle, "rt", encoding="utf-8") as file:
            assert live == set(file.read().splitlines())
    return live


def available(judged: Judgement) -> set[str]:
    return {
        subject.removeprefix("partition:")
        for subject in judged.paths
        if subject.startswith("partition:") and judged.state(subject) == "available"
    }


def imported(uri: str, owid: Path, cwd: Path) -> dict[str, Any]:
    done = belog(
        "import", "history", owid / "snapshot-history.tsv.gz", "--log", uri, "--json", cwd=cwd
    )
    return dict(done.ok().json()[-1])


def test_a_history_leaves_exactly_what_is_live(uri: str, owid: Path, tmp_path: Path) -> None:
    live = live_refs(owid)
    report = imported(uri, owid, tmp_path)
    with opened(uri) as log:
        judged = Judgement(log)
        assert available(judged) == live
        assert len(live) > 1_000
        assert report["appended"] == report["rows"] - report["skipped"] == len(judged.accepted) - 1
        end = log.end()
        # Once more: nothing is new.
        again = imported(uri, owid, tmp_path)
        assert (again["appended"], again["already_there"]) == (
            *(0,),
            report["rows"] - report["skipped"],
        )
        assert log.end() == end
    shown = belog(
        *("partition", "list", "--state", "available", "--log", uri, "--tables", "memory:"),
        *("--json", "--limit", "1"),
        cwd=tmp_path,
    )
    assert len(shown.ok().json()) == 1


def live_at(rows: list[dict[str, str]], moment: datetime) -> set[str]:
    """Count what a history left live at a moment, from nothing but the table itself."""
    live: dict[str, bool] = {}
    for row in rows:
        if datetime.fromisoformat(row["commit_time"]) <= moment:
            live[row["path"]] = row["change"] != "D"
    return {ref for ref, is_live in live.items() if is_live}


def test_the_past_of_a_history_is_as_it_was(owid: Path, tmp_path: Path, seed: int) -> None:
    uri = f"sqlite:///{tmp_path}/owid.db"
    imported(uri, owid, tmp_path)
    with gzip.open(owid / "snapshot-history.tsv.gz", "rt", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    times = sorted({row["commit_time"] for row in rows})
    moments = random.Random(f"{seed}-moments").sample(times, MOMENTS)
    with opened(uri) as log:
        for text in moments:
            moment = datetime.fromisoformat(text)
            fold = TableFold()
            until = Until(occurred_us=(moment - EPOCH) // timedelta(microseconds=1))
            replay_into(log, MemoryTables(fold), until=until)
            found = fold.table(PartitionRow).items()
            then = {ref for ref, row in found if row.state == "available"}
            assert then == live_at(rows, moment), text
    for text in moments[:SHOWN_MOMENTS]:
        live = live_at(rows, datetime.fromisoformat(text))
        bound = ["--log", uri, "--until-occurred", text, "--json"]
        listed = belog(
            *("partition", "list", *bound, "--state", "available", "--limit", str(len(rows))),
            cwd=tmp_path,
        )
        assert {row["ref"] for row in listed.ok().json()} == live
        (replayed,) = belog("replay", *bound, cwd=tmp_path).ok().json()
        counts: Any = replayed["counts"]
        assert counts["partition"].get("available", 0) == len(live)
    kept = belog(
        *("partition", "list", "--log", uri, "--until-occurred", moments[0]),
        *("--tables", "redis://127.0.0.1/0"),
        cwd=tmp_path,
    )
    assert kept.code == 2
    assert "--tables memory:" in kept.err


def has_got_so_far(log: EventLog, position: int, process: subprocess.Popen[str]) -> bool:
    return log.next_position() >= position or process.poll() is not None


def test_an_import_that_was_cut_off_goes_on(
    uri: str, owid: Path, tmp_path: Path, seed: int
) -> None:
    chosen = random.Random(f"{seed}-{uri[:5]}")
    command: list[str | Path] = [
        "import",
        "history",
        owid / "snapshot-history.tsv.gz",
        "--log",
        uri,
    ]
    with opened(uri) as log:
        for _ in range(2):
            wanted = log.next_position() + chosen.randrange(1, 2_500)
            with running(command, cwd=tmp_path) as process:
                eventually(
                    functools.partial(has_got_so_far, log, wanted, process),
                    "the import has got so far",
                )
                process.kill()
                process.wait()
        report = imported(uri, owid, tmp_path)
        judged = Judgement(log)
        assert available(judged) == live_refs(owid)
        assert report["already_there"] > 0
        assert report["rows"] - report["skipped"] == len(judged.accepted) - 1
        assert len(log.read(0, limit=1).events) == 1


def steps_of(owid: Path) -> tuple[list[Path], dict[str, str], set[str]]:
    """Return the files, the graph of each step, and the sources that no graph makes."""
    paths = sorted((owid / "dag").glob("*.yml"))
    makers: dict[str, str] = {}
    named: set[str] = set()

    def walk(graph: str, node: object) -> None:
        if isinstance(node, dict):
            for step, below in node.items():
                named.add(step)
                makers.setdefault(step, graph)
                walk(graph, below)
        elif isinstance(node, list | set):
            for item in node:
                if isinstance(item, str):
                    named.add(item)
                walk(graph, item)

    for path in paths:
        walk(path.stem, yaml.safe_load(path.read_text(encoding="utf-8"))["steps"])
    return paths, makers, named - set(makers)


def test_graphs_publish_at_once_and_build_nothing_twice(uri: str, owid: Path) -> None:
    paths, makers, sources = steps_of(owid)
    answers: list[Answered] = []

    def on_message(message: Answered | GraphReport) -> None:
        if isinstance(message, Answered):
            answers.append(message)

    reports = publish_graphs(uri, paths, process_count=PROCESSES, on_message=on_message)
    assert {report.graph for report in reports} == {path.stem for path in paths}
    assert sum(report.built for report in reports) == len(makers)
    assert sum(report.observed for report in reports) == len(sources)
    builders = Counter(a.answer.ref for a in answers if isinstance(a.answer, Building))
    assert builders == dict.fromkeys(makers, 1), "each step is given to one build"
    across = {a.answer.ref for a in answers if makers.get(a.answer.ref) != a.graph}
    assert len(across) > 50, "graphs ask for each other's steps"
    with opened(uri) as log:
        judged = Judgement(log)
        for step in makers:
            assert judged.paths[f"partition:{step}"].count("v1.partition.available") == 1, step
            assert "v1.partition.failed" not in judged.paths[f"partition:{step}"]
        for source in sources:
            assert judged.paths[f"partition:{source}"] == ["v1.partition.observed"]
        assert available(judged) == set(makers) | sources
        for subject in judged.paths:
            if subject.startswith(("build:", "job_run:")):
                assert judged.state(subject) == "completed", subject
        assert {e.event.event_id for e in log.read(0).events} <= set(judged.accepted)
        if uri.startswith("sqlite"):
            assert log.next_position() == len(judged.accepted), "nothing illegal is in the log"
        else:
            voided = log.statistics()
            assert voided.events == len(judged.accepted)
        end = log.next_position()
        again = publish_graphs(uri, paths, process_count=PROCESSES, on_message=on_message)
        assert sum(report.built + report.delegated + report.observed for report in again) == 0
        fresh = {e.event.subject_kind for e in log.read(end).events}
        assert fresh == {"build"}, "a second run only says that it was"
