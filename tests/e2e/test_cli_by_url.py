"""Commands on a log itself and on a service of it: the same output, the same exit codes."""

import json
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest
from typer.testing import CliRunner

from belog.schemas.errors import BelogError, status_of
from belog.service.access import Access
from belog.service.cli import app
from belog.service.rendering import rfc3339
from tests.e2e.program import running
from tests.http_serving import TOKENS, Served, access, served
from tests.service_process import ServiceProcess

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

RUN: Final[dict[str, object]] = {"build_request_id": "nightly", "job_run_id": "run-1"}
EVENTS: Final[tuple[tuple[str, str, dict[str, object]], ...]] = (
    ("build.received", "nightly", {"requested_partitions": ["raw", "sales"], "client_id": "ann"}),
    ("build.planning", "nightly", {}),
    ("partition.observed", "raw", {"source": "ftp", "manifest": {"outputs": ["raw"]}}),
    ("partition.requested", "sales", {"build_request_id": "nightly"}),
    (
        "job.scheduled",
        "run-1",
        {
            "build_request_id": "nightly",
            "task_id": "load",
            "job_label": "//jobs:load",
            "outputs": ["sales"],
            "inputs": ["raw"],
        },
    ),
    ("partition.scheduled", "sales", {**RUN, "upstream_deps": ["raw"], "job_label": "//jobs:load"}),
    ("job.running", "run-1", {"worker": "w"}),
    ("partition.building", "sales", RUN),
    ("build.received", "b2", {"requested_partitions": ["sales", "lost", "s3://lake/a b/é"]}),
    ("partition.joined", "sales", {"build_request_id": "b2", "requesting_clients": ["bob"]}),
    ("partition.requested", "lost", {"build_request_id": "b2"}),
    ("partition.failed", "lost", {"build_request_id": "b2", "reason": "no disk"}),
    ("partition.requested", "s3://lake/a b/é", {"build_request_id": "b2"}),
    (
        "job.scheduled",
        "run-0",
        {"build_request_id": "b2", "task_id": "t", "job_label": "//jobs:old"},
    ),
    ("job.running", "run-0", {}),
    ("job.completed", "run-0", {}),
)
LINES: Final = "\n".join(
    json.dumps({"event_type": f"v1.{name}", "subject_id": subject, "payload": payload})
    for name, subject, payload in EVENTS
)


class Ran:
    """What a command in this process left."""

    def __init__(
        self, *arguments: str, stdin: str | None = None, env: Mapping[str, str] | None = None
    ) -> None:
        done = CliRunner().invoke(
            app, arguments, input=stdin, env={"COLUMNS": "200", **(env or {})}
        )
        self.out, self.err, self.code = done.stdout, done.stderr, done.exit_code
        if isinstance(done.exception, BelogError):
            self.err += str(done.exception)
            self.code = status_of(done.exception).exit_code
        elif done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception

    def ok(self) -> "Ran":
        assert self.code == 0, self.err + self.out
        return self


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service of a log that holds a build at work."""
    folder = tmp_path_factory.mktemp("by_url")
    with served(folder) as server:
        Ran("append", "--from", "-", "--url", server.url, "--actor", "cli", stdin=LINES).ok()
        yield server


def places(service: Served) -> tuple[tuple[str, str], tuple[str, str]]:
    """How the log is named, and how its service is."""
    return ("--log", service.instance.settings.log_uri), ("--url", service.url)


READING: Final = [
    line.split("|")
    for line in (
        "events",
        "events|--since|3|--limit|2",
        "events|--pattern|s3://**|--type|v1.partition.requested",
        "events|--build|b2|--kind|partition",
        "events|--follow|--since|2|--limit|4",
        "partition|list",
        "partition|list|--by-id|--limit|2",
        "partition|list|--state|failed|--state|available",
        "partition|list|--active|--build|nightly|--prefix|sa",
        "partition|show|sales",
        "partition|show|sales|--events",
        "partition|show|s3://lake/a b/é",
        "partition|explain|sales",
        "partition|explain|lost",
        "partition|graph|raw",
        "partition|graph|sales|--depth|0",
        "partition|graph|nowhere",
        "partition|wait|raw",
        "partition|wait|sales|building|failed|--timeout|0",
        "build|list",
        "build|list|--partition|lost",
        "build|list|--client|ann|--active",
        "build|show|b2|--events",
        "job|list|--label|//jobs:load",
        "job|show|run-1",
        "job|metrics",
        "job|metrics|//jobs:old|--since|2020-01-01T00:00:00Z",
        "task|list",
        "task|show|nightly|load|--events",
        "activity|--window|86400",
        "audit",
        "audit|--partition|sales|--oldest-first|--limit|3",
        "audit|--actor|nobody",
        "stats",
    )
]


@pytest.mark.parametrize("command", READING, ids=" ".join)
def test_reading_shows_the_same(service: Served, command: list[str]) -> None:
    direct, by_url = places(service)
    for form in ((), ("--json",)):
        there = Ran(*command, *form, *direct).ok()
        here = Ran(*command, *form, *by_url).ok()
        assert here.out == there.out
        assert here.err == there.err
        assert there.out or command[:2] == ["audit", "--actor"]


@pytest.mark.parametrize("form", [(), ("--follow",), ("--partition", "sales")])
def test_a_cursor_past_the_end_is_refused_alike(service: Served, form: tuple[str, ...]) -> None:
    end = len(EVENTS) + 1
    for place in places(service):
        refused = Ran("events", "--since", "99999", *form, *place)
        assert refused.code == 1
        assert f"the log ends at {end}, the cursor is at 99999" in refused.err
        assert refused.out == ""
        if "--follow" not in form:
            assert Ran("events", "--since", str(end), *form, *place).ok().out == ""


def test_status_shows_the_same_of_the_log_and_its_own_tables(service: Served) -> None:
    direct, by_url = places(service)
    there = json.loads(Ran("status", "--root", "--json", *direct).ok().out)
    here = json.loads(Ran("status", "--root", "--ready", "--json", *by_url).ok().out)
    own = {name: here.pop(name) for name in ("tables", "applied", "lag_records")}
    del here["applied_created_at"]
    assert own == {"tables": service.url, "applied": there["next_position"], "lag_records": 0}
    assert here.pop("log") == service.url
    assert there.pop("log") != service.url
    assert here == there


REFUSED: Final = [
    line.split("|")
    for line in (
        '3|append|v1.partition.available|raw|--payload|{"build_request_id": "x"}',
        "2|append|v1.partition.requested|raw",
        "2|append|v1.partition.requested|raw|--payload|[]",
        "2|append|v1.partition.requested",
        "4|partition|show|nowhere",
        "4|partition|explain|nowhere",
        "4|build|show|nowhere",
        "4|job|show|nowhere",
        "4|task|show|nightly|nothing",
        "4|build|cancel|nowhere",
        "4|job|cancel|nowhere",
        "4|task|cancel|nightly|nothing",
        "4|job|metrics|nothing",
        "2|partition|graph|raw|--depth|101",
        "2|partition|list|--state|nonsense",
        "2|partition|wait|raw|nonsense",
        "5|partition|wait|sales|--timeout|0.1",
        "5|partition|wait|nowhere|--timeout|0.1",
        "3|partition|wait|lost",
        "3|partition|request|sales|--build|b3|--no-delegation",
        "5|partition|request|sales|--build|b2|--client|bob|--timeout|0.1",
        "2|audit|--partition|a|--build|b",
        "2|events|--pattern|[",
    )
]


@pytest.mark.parametrize("case", REFUSED, ids=" ".join)
def test_refusals_have_the_same_exit_codes(service: Served, case: list[str]) -> None:
    code, *command = case
    direct, by_url = places(service)
    done = [Ran(*command, *place) for place in (by_url, direct)]
    assert [one.code for one in done] == [int(code)] * 2, [one.err for one in done]
    assert [one.out for one in done] == ["", ""]


ID: Final = "018f4c3e-0000-7000-8000-000000000001"
ACTING: Final = [
    line.split("|")
    for line in (
        f"append|v1.job.running|run-1|--event-id|{ID}",
        f"append|v1.job.running|run-1|--event-id|{ID}|--json",
        'append|v1.build.received|b3|--payload|{"requested_partitions": ["sales", "new"]}',
        "partition|request|new|--build|b3|--client|ann",
        "partition|request|new|--build|b3|--json",
        "partition|request|sales|--build|b3|--client|ann|--json",
        "partition|request|raw|--build|b3",
        "append|--from|-",
        "append|--from|-|--json",
        "build|cancel|nightly|--reason|wrong day",
        "build|cancel|nightly|--json",
        "job|cancel|run-1|--json",
        "task|cancel|b2|t2",
        "partition|list|--by-id",
        "build|list|--by-id",
    )
]
MORE: Final = "\n".join(
    json.dumps(
        {
            "event_type": "v1.job.scheduled",
            "subject_id": subject,
            "event_id": f"018f4c3e-0000-7000-8000-00000000000{n}",
            "payload": {"build_request_id": "b2", "task_id": "t2"},
        }
    )
    for n, subject in enumerate(("run-2", "run-3", "run-2"), 2)
)


def test_acting_does_the_same(tmp_path: Path) -> None:
    log = f"sqlite:///{tmp_path / 'direct.db'}"
    (tmp_path / "there").mkdir()
    with served(tmp_path / "there") as server:
        for place in (("--log", log), ("--url", server.url)):
            Ran("append", "--from", "-", *place, "--actor", "cli", stdin=LINES).ok()
        for command in ACTING:
            stdin = MORE if "--from" in command else None
            there = Ran(*command, "--log", log, stdin=stdin)
            here = Ran(*command, "--url", server.url, stdin=stdin)
            assert here.code == there.code, (command, here.err)
            assert timeless(here.out) == timeless(there.out)
            assert here.out
        by_anyone = Ran("events", "--url", server.url, "--json", "--limit", "1000").ok().out
    writers = [json.loads(line)["actor"] for line in by_anyone.splitlines()]
    assert writers.count("cli") == len(EVENTS)


def timeless(text: str) -> str:
    """Without the times at which two logs were written, and the name of one that refused."""
    return re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", re.sub(r'"log":"[^"]*",', "", text))


# --- which of the two is asked


def test_what_is_typed_goes_before_what_is_configured(service: Served, tmp_path: Path) -> None:
    direct, by_url = places(service)
    empty = f"sqlite:///{tmp_path / 'none.db'}"
    url_set, log_set = {"BELOG__CLIENT__URL": by_url[1]}, {"BELOG__LOG__URI": direct[1]}
    shown = Ran("status", "--json", env=url_set).ok().out
    assert json.loads(shown)["log"] == service.url
    both = Ran("status", "--json", env={**url_set, **log_set}).ok()
    assert json.loads(both.out)["log"] != service.url
    assert both.err == ""
    assert Ran("status", "--log", empty, env=url_set).code == 4
    typed = Ran("status", "--json", *by_url, env={"BELOG__LOG__URI": empty}).ok()
    assert json.loads(typed.out)["log"] == service.url
    nothing = Ran("partition", "list")
    assert (nothing.code, "--url" in nothing.err) == (2, True)
    assert Ran("status", *direct, *by_url).code == 2
    mistaken = Ran("status", "--log", by_url[1])
    assert (mistaken.code, "--url" in mistaken.err) == (2, True)


@pytest.mark.parametrize(
    "command",
    [
        *("verify", "replay", "snapshot", "vacuum", "migrate", "worker", "sink", "changes"),
        *("topic check", "topic create", "import history"),
    ],
)
def test_what_needs_the_log_says_so(command: str) -> None:
    done = Ran(*command.split(), "--url", "http://127.0.0.1:1")
    assert done.code == 2
    assert "works on the log itself, not through a service" in done.err


def test_a_bound_needs_the_log(service: Served) -> None:
    done = Ran("partition", "list", "--until", "3", "--url", service.url)
    assert (done.code, "--log" in done.err) == (2, True)


def test_a_token_comes_from_a_flag_a_file_or_nowhere(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKENS["writer"] + "\n")
    who: Access = access()
    with served(tmp_path, who=who) as server:
        to = ("--url", server.url)
        append = ("append", "v1.partition.observed")
        assert Ran(*append, "a", *to).code == 1
        assert Ran(*append, "a", *to, "--token", TOKENS["reader"]).code == 1
        from_file = {"BELOG__CLIENT__TOKEN_FILE": str(file)}
        Ran(*append, "a", *to, env=from_file).ok()
        # What is typed goes before the file.
        assert Ran(*append, "b", *to, "--token", TOKENS["reader"], env=from_file).code == 1
        (event,) = Ran("events", "--since", "1", "--json", *to, env=from_file).ok().out.splitlines()
    assert json.loads(event)["actor"] == "writer"


def test_a_vacuumed_log_is_told_of_alike(tmp_path: Path) -> None:
    log, snapshots = f"sqlite:///{tmp_path / 'log.db'}", ("--snapshots", str(tmp_path / "kept"))
    direct = ("--log", log)
    made = [
        json.dumps({"event_type": f"v1.partition.{name}", "subject_id": "sales", "payload": body})
        for body in ({"build_request_id": "b1"}, {"build_request_id": "b2"})
        for name in ("requested", "scheduled", "building", "available")
    ]
    Ran("append", "--from", "-", *direct, stdin="\n".join(made)).ok()
    Ran("snapshot", *snapshots, *direct).ok()
    after = rfc3339(time.time_ns() // 1000 + 1_000_000)
    removed = Ran("vacuum", "--before", after, "--yes", *snapshots, *direct).ok()
    assert not removed.out.startswith("0 ")
    with ServiceProcess(log, tmp_path, **{"snapshots.uri": snapshots[1]}) as service:
        places = ((*direct, *snapshots), ("--url", service.url))
        there, here = (Ran("partition", "show", "sales", "--events", *place) for place in places)
        assert (here.out, here.err) == (there.out, there.err)
        assert "were vacuumed" in here.err
        gone = [Ran("events", *place) for place in places]
        assert [(one.code, one.out) for one in gone] == [(4, "")] * 2


def test_following_goes_on_over_a_restart(tmp_path: Path) -> None:
    with ServiceProcess(f"sqlite:///{tmp_path / 'log.db'}", tmp_path) as service:
        to = ("--url", service.url)
        with running(["events", "--follow", "--json", *to], cwd=tmp_path) as tail:
            assert tail.stdout is not None
            seen = [json.loads(tail.stdout.readline())["index"]]
            for n in range(4):
                if n == 2:
                    service.restart()
                Ran("append", "v1.partition.observed", f"p{n}", *to).ok()
                seen.append(json.loads(tail.stdout.readline())["index"])
    assert seen == [0, 1, 2, 3, 4]
