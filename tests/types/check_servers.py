"""What the type checkers must see of the test servers. Never run."""

from collections.abc import Callable
from typing import assert_type

from tests.servers import Broker, Redis, eventually


def check_eventually_keeps_the_type(find: Callable[[], str | None]) -> None:
    assert_type(eventually(lambda: 3), int)
    assert_type(eventually(find), str | None)


def check_create_and_with_keep_the_class(broker: Broker) -> None:
    assert_type(broker.start(), Broker)
    with Redis.create(persistence="append") as server:
        assert_type(server, Redis)
