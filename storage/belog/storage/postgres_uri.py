"""The URI of a log in PostgreSQL: what libpq takes, and which log in the database it is."""

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlencode

import psycopg
from msgspec import Struct
from psycopg.conninfo import conninfo_to_dict
from psycopg.sql import Identifier

from belog.schemas.errors import InvalidUri

__all__ = ["Target", "parse_uri"]

_OWN_PARAMETERS: Final = ("schema", "log")
_SCHEMA_DEFAULT: Final = "belog"
_LOG_DEFAULT: Final = "main"
_PORT_MAX: Final = 65_535
_NAME_BYTES_MAX: Final = 63
"""PostgreSQL cuts identifiers off after that."""


class Target(Struct, frozen=True):
    """Which log on which server.

    Attributes:
        name: The URI without secrets.
        conninfo: What libpq wants, secrets included; never shown.
        schema: Name of the schema.
        log: Name of the log within it.
        hosts: How many hosts are tried.
        quoted: The schema as SQL names it.
    """

    name: str
    conninfo: Mapping[str, Any]
    schema: str
    log: str
    hosts: int
    quoted: str

    def __repr__(self) -> str:
        """Return the name: what else is here may be secret."""
        return f"Target({self.name!r})"

    def sql(self, statement: str) -> bytes:
        """Return a statement that takes parameters, with its `{schema}` filled in."""
        return statement.replace("{schema}", self.quoted.replace("%", "%%")).encode()

    def script(self, statements: str) -> bytes:
        """Return statements that take no parameters, with their `{schema}` filled in."""
        return statements.replace("{schema}", self.quoted).encode()


def parse_uri(uri: str) -> Target:
    """Read a libpq URI with the parameters `schema` and `log` of our own.

    Raises:
        InvalidUri: It is malformed, or names a parameter that libpq does not know.
    """
    base, _, query = uri.partition("?")
    pairs = parse_qsl(query, keep_blank_values=True)
    own = {name: value for name, value in pairs if name in _OWN_PARAMETERS}
    rest = [(name, value) for name, value in pairs if name not in _OWN_PARAMETERS]
    # libpq takes a plus sign as it is, so spaces have to be %20.
    libpq = f"{base}?{urlencode(rest, quote_via=quote)}" if rest else base
    try:
        conninfo = conninfo_to_dict(libpq)
    except psycopg.ProgrammingError as error:
        # libpq quotes what it cannot read, which may be a part of the password.
        unknown = re.search(r'invalid URI query parameter: "(\w+)"', str(error))
        what = f"has an unknown parameter {unknown[1]!r}" if unknown else "is malformed"
        msg = f"PostgreSQL log URI {what}"
        hint = "postgresql://user@host:port/database?schema=…&log=…, and what libpq takes"
        raise InvalidUri(msg, hint=hint) from None
    for port in str(conninfo.get("port") or "").split(","):
        if port and not (port.isascii() and port.isdecimal() and 0 < int(port) <= _PORT_MAX):
            msg = "PostgreSQL log URI has a port that is no number from 1 to 65535"
            raise InvalidUri(msg)
    schema, log = own.get("schema", _SCHEMA_DEFAULT), own.get("log", _LOG_DEFAULT)
    for what, value in (("schema", schema), ("log", log)):
        if not 0 < len(value.encode()) <= _NAME_BYTES_MAX or not value.isprintable():
            msg = f"the name of the {what} must have 1 to {_NAME_BYTES_MAX} bytes, all printable"
            raise InvalidUri(msg)
    name = _shown(conninfo, schema, log)
    quoted = Identifier(schema).as_string()
    return Target(name, conninfo, schema, log, _host_count(conninfo), quoted)


def _host_count(conninfo: Mapping[str, Any]) -> int:
    return max(str(conninfo.get(key) or "").count(",") + 1 for key in ("host", "hostaddr"))


def _shown(conninfo: Mapping[str, Any], schema: str, log: str) -> str:
    hosts = str(conninfo.get("host") or conninfo.get("hostaddr") or "").split(",")
    ports = str(conninfo.get("port") or "").split(",")
    if len(ports) < len(hosts):
        ports = ports[:1] * len(hosts)
    shown = ",".join(
        f"{quote(host, safe='[]:')}:{port}" if port else quote(host, safe="[]:")
        for host, port in zip(hosts, ports, strict=False)
    )
    user = conninfo.get("user")
    login = f"{quote(str(user), safe='')}@" if user else ""
    database = quote(str(conninfo.get("dbname") or ""), safe="")
    query = urlencode({"schema": schema, "log": log}, quote_via=quote)
    return f"postgresql://{login}{shown}/{database}?{query}"
