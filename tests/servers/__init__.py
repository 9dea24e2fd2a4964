"""Real servers for the tests: Kafka, Redis and PostgreSQL on free ports of 127.0.0.1.

`Broker`, `Redis` and `Postgres` share one interface (`Server`): start, kill (SIGKILL),
stop (SIGTERM), restart, pause and resume, close. Each runs as a process of this machine
or in a container, or is one that already runs (`BELOG_TEST_KAFKA=host:port`,
`BELOG_TEST_REDIS=redis://…`, `BELOG_TEST_POSTGRES=postgresql://…`).

`BELOG_TEST_SERVERS=docker|local` forces the provider. Without it Docker is used where
an engine answers and has or can pull the image.
"""

from tests.servers.broker import Broker
from tests.servers.postgres import Postgres
from tests.servers.redis import Persistence, Redis
from tests.servers.runner import NotOursError
from tests.servers.server import Provider, Server, provider_of
from tests.servers.wait import eventually, free_port, port_is_open

__all__ = [
    "Broker",
    "NotOursError",
    "Persistence",
    "Postgres",
    "Provider",
    "Redis",
    "Server",
    "eventually",
    "free_port",
    "port_is_open",
    "provider_of",
]
