"""What chaos tests share: one broker, one Redis and one PostgreSQL, each behind a gate."""

from collections.abc import Iterator

import pytest

from tests.chaos.systems import Servers


@pytest.fixture(scope="session")
def chaos_servers() -> Iterator[Servers]:
    """Servers that chaos runs may kill; each is started by the first run that needs it."""
    with Servers() as servers:
        yield servers
