"""URIs of Delta logs. Pure.

`delta:///path` is an absolute path, `delta:path` a relative one. An object store is named by its
own scheme after a plus sign, `delta+s3://bucket/path`, `delta+gs://…`, `delta+az://…`,
`delta+abfss://…`, with storage options in the query, named as deltalake names them:
`?aws_region=eu-central-1&aws_endpoint_url=…`. Secrets are better left out: deltalake reads the
usual environment variables. The log's name, which errors show, never holds the query.

Source: https://delta-io.github.io/delta-rs/usage/loading-table/
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from msgspec import Struct

from belog.schemas.errors import InvalidUri

__all__ = ["STORES", "DeltaLocation", "local_location", "parse_delta_uri"]

STORES: Final = ("s3", "s3a", "gs", "az", "abfs", "abfss")
"""Schemes of object stores; each has a conditional put, which the log's order rests on."""

_UNSAFE: Final = frozenset(
    {"allow_unsafe_rename", "aws_s3_allow_unsafe_rename", "mount_allow_unsafe_rename"}
)


class DeltaLocation(Struct, frozen=True):
    """Where a Delta log is."""

    name: str
    """Its URI without secrets."""
    table_uri: str
    """As deltalake wants it."""
    folder: Path | None
    """Set where it is a local path."""
    options: Mapping[str, str] = {}
    """Storage options; may hold secrets."""


def parse_delta_uri(uri: str) -> DeltaLocation:
    """Read a URI.

    Raises:
        InvalidUri: It is malformed, the store is not supported, or an option would let two writers
            make the same commit.
    """
    parts = urlsplit(uri)
    scheme, _, store = parts.scheme.partition("+")
    if scheme != "delta" or parts.fragment:
        msg = "a Delta log's URI starts with delta: and has no fragment"
        raise InvalidUri(msg, hint="delta:///path, or delta+s3://bucket/path?option=value")
    if not store:
        return _local(parts.netloc, unquote(parts.path), parts.query)
    if store not in STORES:
        msg = f"object store {store!r} of a Delta log is not supported"
        raise InvalidUri(msg, hint="supported: " + ", ".join(f"delta+{s}:" for s in STORES))
    if not parts.netloc or ("@" in parts.netloc and not store.startswith("abfs")):
        msg = "a Delta log's URI names a bucket, and no user or password"
        raise InvalidUri(msg, hint=f"delta+{store}://bucket/path?option=value")
    if "@" in parts.netloc and ":" in parts.netloc.partition("@")[0]:
        msg = "a Delta log's URI takes no password"
        raise InvalidUri(msg, hint="give it as a storage option or in the environment")
    try:
        pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        msg = "the storage options of a Delta log's URI are not name=value&name=value"
        # The cause's message quotes what may be a secret.
        raise InvalidUri(msg) from None
    options = dict(pairs)
    if unsafe := sorted(name for name in options if name.lower() in _UNSAFE):
        msg = f"{unsafe[0]} would let two writers make the same commit"
        raise InvalidUri(msg, hint="leave it out: the log needs a store with a conditional put")
    table_uri = f"{store}://{parts.netloc}{parts.path}"
    return DeltaLocation(f"delta+{table_uri}", table_uri, None, options)


def _local(netloc: str, path: str, query: str) -> DeltaLocation:
    if netloc not in {"", "localhost"} or not path or query:
        msg = "a local Delta log is named delta:///path, without options"
        raise InvalidUri(msg, hint="delta:path for a relative one")
    # Four slashes, as SQLite's absolute paths have, mean the same.
    folder = Path(f"/{path.lstrip('/')}" if path.startswith("/") else path)
    return local_location(folder)


def local_location(folder: Path) -> DeltaLocation:
    """Return the location of a local folder."""
    name = f"delta:{'//' if folder.is_absolute() else ''}{folder}"
    return DeltaLocation(name, str(folder.absolute()), folder.absolute())
