"""Tables by URI.

==========================================  ===============================================
URI                                         tables
==========================================  ===============================================
`redis://host:port/db?prefix=…`             in Redis; `rediss:` for TLS
`memory:`                                   of this process only, empty until they catch up
==========================================  ===============================================
"""

from importlib import import_module
from typing import Final, Protocol, cast

from belog.processors.memory_tables import MemoryTables
from belog.processors.tables import TableReader
from belog.schemas.errors import InvalidUri
from belog.storage.factory import redacted

__all__ = ["SCHEMES", "open_tables"]

SCHEMES: Final = ("redis", "rediss", "memory")


class _Backend(Protocol):
    def from_uri(self, uri: str) -> TableReader: ...


def open_tables(uri: str) -> TableReader:
    """Return the tables that a URI names, for reading; nothing is connected before the first call.

    Raises:
        InvalidUri: The scheme is not supported, the rest is malformed, or the package that it needs
            is not installed.
    """
    scheme, _, rest = uri.partition(":")
    if scheme == "memory" and not rest:
        return MemoryTables()
    if scheme not in {"redis", "rediss"}:
        msg = f"tables URI {redacted(uri)!r} has no supported scheme"
        raise InvalidUri(msg, hint="supported: " + ", ".join(f"{name}:" for name in SCHEMES))
    try:
        backend = cast("_Backend", import_module("belog.processors.redis_tables"))
    except ImportError as error:
        msg = f"{scheme}: tables need a package that is not installed ({error.name})"
        raise InvalidUri(msg, hint="pip install 'belog[redis]'") from error
    return backend.from_uri(uri)
