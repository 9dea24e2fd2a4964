"""Fixtures for all tests: real servers, names that no two tests share, and a seed.

The servers are started by the first test that asks for them, one each per session.
A test that kills or fills a server makes one of its own (`new_broker`, `new_redis`,
`new_postgres`). Each test keeps to its own topic, key prefix and schema.
"""

import os
import random
import re
import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack

import pytest
from hypothesis import settings
from psycopg.sql import SQL, Identifier

from tests.servers import Broker, Postgres, Redis, provider_of

SEED_BITS = 32

NAME_CHARS_MAX = 40
"""How much of a test's name its topic or schema carries: PostgreSQL cuts off after 63."""

# No deadline: this is a busy machine's time, not the program's. A failure prints how to replay it.
settings.register_profile("belog", deadline=None, print_blob=True)
settings.load_profile("belog")

SEED: pytest.StashKey[int] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--seed` and `--owid`."""
    parser.addoption("--seed", type=int, help="replay the random choices of a run (see `seed`)")
    parser.addoption("--owid", metavar="DIR", help="tests/e2e/test_owid.py: the whole, not a part")


def pytest_configure(config: pytest.Config) -> None:
    """Choose the seed of this run."""
    given = config.getoption("--seed")
    drawn = random.SystemRandom().getrandbits(SEED_BITS)
    config.stash[SEED] = drawn if given is None else given


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Say where servers come from, and the seed."""
    return [f"servers: {_providers()}", f"seed: {config.stash[SEED]} (replay with --seed)"]


def _providers() -> str:
    parts: list[str] = []
    for name in ("kafka", "redis", "postgres"):
        provider = "external" if os.environ.get(f"BELOG_TEST_{name.upper()}") else provider_of(name)
        parts.append(f"{name} {provider}")
    return ", ".join(parts)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Print the seed with every failure of a test that used it."""
    report = yield
    if report.failed and "seed" in getattr(item, "fixturenames", ()):
        again = f"pytest {item.nodeid!r} --seed {item.config.stash[SEED]}"
        report.sections.append(("seed", f"replay with: {again}"))
    return report


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """The seed of this run; the same for every test, printed when one fails.

    Give it to `random.Random`; for several streams, to `random.Random(f"{seed}-{name}")`.
    """
    return request.config.stash[SEED]


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """The session's Kafka broker."""
    with Broker.shared() as server:
        yield server


@pytest.fixture(scope="session")
def redis_server() -> Iterator[Redis]:
    """The session's Redis server, without persistence."""
    with Redis.shared() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """The session's PostgreSQL server; its superuser is trusted."""
    with Postgres.shared() as server:
        yield server


@pytest.fixture
def new_broker() -> Iterator[Callable[..., Broker]]:
    """Makes started brokers that only this test uses: `new_broker(config={…})`."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(Broker.create(**options))


@pytest.fixture
def new_redis() -> Iterator[Callable[..., Redis]]:
    """Makes started servers that only this test uses: `new_redis(persistence="append")`."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(Redis.create(**options))


@pytest.fixture
def new_postgres() -> Iterator[Callable[..., Postgres]]:
    """Makes started servers that only this test uses: `new_postgres(password="…")`."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(Postgres.create(**options))


@pytest.fixture
def unique_name(request: pytest.FixtureRequest) -> str:
    """A name that no other test and no other run uses: letters, digits, underscores."""
    test = re.sub(r"[^a-z0-9]+", "_", request.node.name.lower()).strip("_")
    return f"{test[:NAME_CHARS_MAX]}_{uuid.uuid4().hex[:8]}"


@pytest.fixture
def topic_name(unique_name: str) -> str:
    """The name of this test's own topic; nothing makes it."""
    return unique_name.replace("_", "-")


@pytest.fixture
def redis_prefix(unique_name: str) -> str:
    """What this test's own keys start with."""
    return f"{unique_name}:"


@pytest.fixture
def postgres_schema(postgres_server: Postgres, unique_name: str) -> Iterator[str]:
    """The name of this test's own schema, made and dropped again."""
    with postgres_server.connect() as connection:
        connection.execute(SQL("CREATE SCHEMA {}").format(Identifier(unique_name)))
    yield unique_name
    with postgres_server.connect() as connection:
        connection.execute(SQL("DROP SCHEMA {} CASCADE").format(Identifier(unique_name)))
