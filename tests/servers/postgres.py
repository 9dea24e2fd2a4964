"""PostgreSQL: one cluster with its own data directory."""

import shutil
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote, urlsplit

import psycopg

from tests.servers.containers import CONTAINER_PORTS
from tests.servers.runner import Plan, Runner
from tests.servers.server import Provider, Server, external, obtain, provider_of, runner_for
from tests.servers.wait import free_port

__all__ = ["Postgres"]

ANSWER_S = 2
"""How long one look at the server may take."""

# $BIN is a glob where the place is known inside the image only. A kill leaves
# postmaster.pid behind, and the server itself finds out that it is stale. To a server
# in a container the tests come from another host, which initdb's rules do not name.
SCRIPT = """
bin=$(echo $BIN); bin=${bin##* }
if [ ! -e "$DATA/cluster/PG_VERSION" ]; then
  umask 077; printf '%s' "$PASSWORD" >"$DATA/password"
  "$bin/initdb" -D "$DATA/cluster" -U postgres -E UTF8 --no-locale --no-sync \\
    --auth="$AUTH" --pwfile="$DATA/password"
  echo "host all all all $AUTH" >>"$DATA/cluster/pg_hba.conf"
fi
exec "$bin/postgres" -D "$DATA/cluster" -p "$PORT" -c listen_addresses="$BIND" \\
  -c unix_socket_directories="$DATA" -c max_connections=100
"""


class Postgres(Server):
    """A PostgreSQL server on 127.0.0.1 with the superuser `postgres`."""

    def __init__(self, runner: Runner, port: int, uri: str) -> None:
        """Use `create`."""
        super().__init__(runner, port)
        self._uri = uri

    @classmethod
    def create(cls, *, password: str | None = None, provider: Provider | None = None) -> Self:
        """Make a server of our own, not started.

        Args:
            password: Of the superuser. None: everybody on this machine is trusted.
            provider: None for what the environment and the machine suggest.

        Raises:
            RuntimeError: It cannot be had here. Says what is missing.
        """
        port = free_port()
        provider = provider or provider_of("postgres")
        if provider == "local":
            obtain("postgres")
        inside = port if provider == "local" else CONTAINER_PORTS["postgres"]
        env = {
            "BIN": _bin_dir() if provider == "local" else "/usr/lib/postgresql/*/bin",
            "PORT": str(inside),
            "PASSWORD": password or "unused",
            "AUTH": "scram-sha-256" if password else "trust",
        }
        login = f"postgres:{quote(password, safe='')}" if password else "postgres"
        plan = Plan(name="postgres", port=port, script=SCRIPT, env=env, user="postgres")
        uri = f"postgresql://{login}@127.0.0.1:{port}/postgres"
        return cls(runner_for(plan, provider), port, uri)

    @classmethod
    def shared(cls) -> Self:
        """Return the server that `BELOG_TEST_POSTGRES=postgresql://…` names, else a new one."""
        named = external("postgres")
        if not named:
            return cls.create()
        runner, uri = named
        return cls(runner, urlsplit(uri).port or CONTAINER_PORTS["postgres"], uri)

    @property
    def uri(self) -> str:
        """`postgresql://user[:password]@host:port/database`."""
        return self._uri

    def connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        """Return a new connection in autocommit mode; the caller closes it."""
        return psycopg.connect(self._uri, autocommit=True, connect_timeout=ANSWER_S)

    def is_ready(self) -> bool:
        """Open a connection."""
        try:
            self.connect().close()
        except psycopg.OperationalError:
            return False
        return True


def _bin_dir() -> str:
    """Return where the newest PostgreSQL of this machine has its programs."""
    # Debian keeps them off PATH, one folder per major version.
    found = Path("/usr/lib/postgresql").glob("*/bin/postgres")
    newest = max(found, key=lambda path: float(path.parts[-3]), default=None)
    on_path = shutil.which("postgres")
    if newest is None and on_path is None:
        raise RuntimeError("PostgreSQL is missing, though scripts/servers was content")
    return str((newest or Path(on_path or "")).parent)
