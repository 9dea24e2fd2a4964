"""Logs by URI.

==================================  =====================================================
URI                                 log
==================================  =====================================================
`sqlite:///path`                    one file, the embedded default
`postgresql://…`, `postgres://…`    a database, `?schema=&log=` and what libpq takes
`kafka://host:port[,…]/topic?…`     a topic of one partition; the query holds client settings, and
                                    `index=/path` for a local index of it (`belog.storage.indexed`)
`file:///path`                      a folder of segment files, one writing process
`delta:///path`                     a Delta Lake table; `delta+s3://bucket/path?option=…` and other
                                    object stores, see `belog.storage.delta_uri`
`memory:`                           this process only
`stdout:`                           shows events as JSON lines, cannot be read
==================================  =====================================================

A backend's module, and with it its third-party client, is imported when its first log is opened.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Final, Protocol, cast
from urllib.parse import urlsplit

from belog.schemas.errors import InvalidUri
from belog.storage.delta_uri import STORES as DELTA_STORES
from belog.storage.interface import EventLog

__all__ = ["SCHEMES", "Backend", "open_log", "redacted"]


class Backend(Protocol):
    """What a backend's module offers to the factory."""

    def from_uri(self, uri: str) -> EventLog:
        """Return a log that is not opened yet. Raises `InvalidUri`."""
        ...


SCHEMES: Final[Mapping[str, tuple[str, str]]] = {
    "sqlite": ("belog.storage.sqlite", ""),
    "kafka": ("belog.storage.kafka_indexed", "kafka"),
    "file": ("belog.storage.file", ""),
    "delta": ("belog.storage.delta", "delta"),
    **{f"delta+{store}": ("belog.storage.delta", "delta") for store in DELTA_STORES},
    "postgresql": ("belog.storage.postgres", "postgres"),
    "postgres": ("belog.storage.postgres", "postgres"),
    "memory": ("belog.storage.memory", ""),
    "stdout": ("belog.storage.stdout", ""),
}
"""URI scheme → module, and the extra that brings its client."""


def redacted(uri: str) -> str:
    """Return a URI without its password and without settings that may be secret."""
    parts = urlsplit(uri)
    netloc = parts.netloc
    if not netloc and "@" in parts.path:
        # Not of the form; what stands before the host may be a password all the same.
        return f"{parts.scheme}{':' if parts.scheme else ''}***@{parts.path.rpartition('@')[2]}"
    if not parts.scheme:
        return parts.path
    if "@" in netloc:
        user, _, host = netloc.rpartition("@")
        netloc = f"{user.partition(':')[0]}:***@{host}" if ":" in user else f"{user}@{host}"
    base = f"{parts.scheme}:{'//' if netloc or uri.startswith(parts.scheme + '://') else ''}"
    return f"{base}{netloc}{parts.path}"


def open_log(uri: str) -> EventLog:
    """Return the log that a URI names; nothing is opened or created before its `initialize`.

    Raises:
        InvalidUri: The scheme is not supported, the rest is malformed, or the backend's extra is
            not installed.
    """
    scheme, colon, _ = uri.partition(":")
    found = SCHEMES.get(scheme.lower())
    if not colon or found is None:
        known = ", ".join(f"{name}:" for name in SCHEMES)
        msg = f"log URI {redacted(uri)!r} has no supported scheme"
        raise InvalidUri(msg, hint=f"supported: {known}")
    module, extra = found
    try:
        backend = cast("Backend", import_module(module))
    except ImportError as error:
        if not extra:
            raise
        msg = f"{scheme}: logs need a package that is not installed ({error.name})"
        raise InvalidUri(msg, hint=f"pip install 'belog[{extra}]'") from error
    make: Callable[[str], EventLog] = backend.from_uri
    return make(uri)
