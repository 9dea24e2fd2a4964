"""Every command and program of the guides runs, in order, and shows what the guides show.

The seven numbered examples run against both deployments: `belog serve` on SQLite, and Kafka with
a worker, Redis and `belog serve`. What is said of files, pages and tests is looked up.
"""

import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.request import urlopen

import pytest
from msgspec import Struct

from belog.service.http_api.reference import page
from tests.e2e.program import belog, environment, running
from tests.servers import Broker, Redis, eventually, free_port

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

DOCS = Path(__file__).parents[2] / "docs"
GUIDES = ("graph-author", "subscriber", "operator")
EXAMPLES = (
    *("publish a build", "be refused", "request a partition, three ways", "wait"),
    *("follow with a cursor", "explain", "cancel"),
)
SHOWN_S = 20.0
"""How long tables that a worker keeps may take to show what was written: it may have to start."""


class Command(Struct, frozen=True):
    """One command of a guide, and what it shows there."""

    line: str
    code: int
    shown: str
    """`…` stands for anything within a line; a line of its own, for any lines."""
    example: int | None


def text_of(guide: str) -> str:
    return (DOCS / "guides" / f"{guide}.md").read_text(encoding="utf-8")


def commands(text: str) -> Iterator[Command]:
    """The commands of a guide, in order."""
    example: int | None = None
    for heading, block in re.findall(
        r"^(#+ [^\n]*)$|^```console\n(.*?)^```", text, re.DOTALL | re.MULTILINE
    ):
        if heading:
            found = re.match(r"### Example (\d): ", heading)
            example = int(found[1]) if found else None
            continue
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            line, _, shown = part.partition("\n")
            line, _, code = line.partition("   # exit code ")
            yield Command(line, int(code or 0), shown.rstrip("\n"), example)


def programs(text: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def is_shown(printed: str, shown: str) -> bool:
    """Whether what was printed is what a guide shows."""
    wanted = ".*".join(map(re.escape, shown.split("…")))
    return re.fullmatch(rf"{wanted}\n*", printed, re.DOTALL) is not None


class Deployment:
    """A running service, and a shell in which its user types."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.port = port

    def type(self, command: Command) -> None:
        """Type a command of a guide; it has to end as the guide says."""

        # What only asks may be asked again: a worker may not be that far.
        is_asking = re.match(r"belog (events|partition (explain|wait)|activity)", command.line)
        deadline = time.monotonic() + (SHOWN_S if is_asking else 0.0)
        while True:
            code, printed = self.run(command.line)
            if code == command.code and is_shown(printed, command.shown):
                return
            assert time.monotonic() < deadline, f"{command.line}\nexit code {code}\n{printed}"

    def run(self, line: str) -> tuple[int, str]:
        """Run a command line; return its exit code and what it printed."""
        env = environment({"BELOG__CLIENT__URL": f"http://localhost:{self.port}"})
        done = subprocess.run(
            ["bash", "-c", line.replace("localhost:8000", f"localhost:{self.port}")],
            cwd=self.folder,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=120,
        )
        return done.returncode, done.stdout

    def run_program(self, source: str) -> str:
        """Run a program of a guide."""
        path = self.folder / "program.py"
        path.write_text(source.replace("8000", str(self.port)), encoding="utf-8")
        code, printed = self.run(f"{shlex.quote(sys.executable)} {path.name}")
        assert code == 0, f"{source}\n{printed}"
        return printed


def is_up(url: str) -> bool:
    """Whether a service answers."""
    try:
        with urlopen(url, timeout=5) as answer:  # noqa: S310 - our own
            return bool(answer.status == 200)
    except OSError:
        return False


def started(stack: ExitStack, folder: Path, arguments: list[str]) -> Deployment:
    """Start `belog serve`, again and again as a supervisor does, until it answers."""
    port = free_port()
    deployment = Deployment(folder, port)

    def answers() -> bool:
        process = stack.enter_context(
            running(["serve", "--port", str(port), *arguments], cwd=folder)
        )
        eventually(
            lambda: process.poll() is not None or is_up(f"http://localhost:{port}/healthz"),
            "it answers or ends",
            timeout_s=60,
        )
        return process.poll() is None

    eventually(answers, "the service answers", timeout_s=120)
    return deployment


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """`belog serve` on SQLite, as a guide starts it."""
    folder = tmp_path_factory.mktemp("embedded")
    (serve,) = [c for c in commands(text_of("operator")) if "serve --log sqlite" in c.line]
    arguments = shlex.split(serve.line)[2:]
    at = arguments.index("--port")
    with ExitStack() as stack:
        yield started(stack, folder, arguments[:at] + arguments[at + 2 :])


@pytest.fixture(scope="module")
def distributed(
    tmp_path_factory: pytest.TempPathFactory, broker: Broker, redis_server: Redis
) -> Iterator[Deployment]:
    """Kafka, a worker, Redis and `belog serve`, as a guide starts them."""
    folder = tmp_path_factory.mktemp("distributed")
    name = f"guides-{free_port()}"
    lines = [
        c.line.replace("localhost:9092/builds", f"{broker.bootstrap}/{name}").replace(
            "redis://localhost:6379/0", f"{redis_server.uri}?prefix={name}:"
        )
        for c in commands(text_of("operator"))
        if "kafka://localhost:9092" in c.line
    ]
    topic, worker, serve = (shlex.split(line)[1:] for line in lines)
    belog(*topic, cwd=folder).ok()
    with ExitStack() as stack:
        stack.enter_context(running(worker, cwd=folder))
        at = serve.index("--port")
        yield started(stack, folder, serve[1:at])


def test_there_are_seven_examples() -> None:
    text = "\n".join(map(text_of, GUIDES))
    found = re.findall(r"^### Example (\d): (.*)$", text, re.MULTILINE)
    assert found == [(str(n), title) for n, title in enumerate(EXAMPLES, 1)]


def test_the_guides_run_from_top_to_bottom_on_sqlite(embedded: Deployment) -> None:
    outputs: list[str] = []
    for guide in GUIDES[:2]:
        text = text_of(guide)
        for command in commands(text):
            if not command.line.startswith(("belog serve", "export")):
                embedded.type(command)
        outputs.extend(map(embedded.run_program, programs(text)))
    for command in commands(text_of("operator")):
        if "serve" not in command.line and "localhost" not in command.line:
            embedded.type(command)
    assert outputs[0].startswith("made, index ")
    assert outputs[1] == "made, index 4\n"
    made, distinct = map(int, re.findall(r"\d+", outputs[2]))
    assert made == distinct >= 3
    # What a reader who is killed begins with again: nothing is there twice.
    assert embedded.run_program(programs(text_of("subscriber"))[0]) == outputs[2]


@pytest.mark.integration
def test_the_seven_examples_run_on_kafka_and_redis(distributed: Deployment) -> None:
    seen: list[int] = []
    for guide in GUIDES:
        for command in commands(text_of(guide)):
            if command.example is not None:
                distributed.type(command)
                seen.append(command.example)
    assert sorted(set(seen)) == list(range(1, 8))


def test_the_setting_of_the_guides_is_the_variable_of_the_url() -> None:
    (export,) = [c.line for c in commands(text_of("graph-author")) if c.line.startswith("export")]
    assert export == "export BELOG__CLIENT__URL=http://localhost:8000"


# --- the other pages


def test_the_reference_is_that_of_the_routes_and_protos() -> None:
    assert (DOCS / "api.md").read_text(encoding="utf-8") == page(), (
        "python -m belog.service.http_api.reference > docs/api.md"
    )


@pytest.mark.parametrize("name", [*(f"guides/{guide}.md" for guide in GUIDES), "semantics.md"])
def test_links_lead_somewhere(name: str) -> None:
    path = DOCS / name
    links = re.findall(r"\]\(([^)]+)\)", path.read_text(encoding="utf-8"))
    assert links or name == "semantics.md"
    for link in links:
        file, _, anchor = link.partition("#")
        target = path if not file else (path.parent / file).resolve()
        assert target.exists(), link
        headings = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
        anchors = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in headings}
        assert not anchor or anchor in anchors, link


def test_semantics_names_tests_that_are_there() -> None:
    named = re.findall(r"`(tests/[\w/.]+)`", (DOCS / "semantics.md").read_text(encoding="utf-8"))
    assert len(named) > 20
    for file in named:
        assert (DOCS.parent / file).exists(), file
