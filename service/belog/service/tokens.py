"""Tokens as they are made, kept in files and read from them."""

import logging
import os
import secrets
import threading
import time
import tomllib
from pathlib import Path
from typing import Final

import msgspec

from belog.schemas.errors import BelogError, InvalidConfiguration
from belog.service.access import (
    TOKEN_CHARS_MAX,
    TOKEN_RANDOM_BYTES,
    Access,
    Grant,
    TokenEntry,
    token_text,
)
from belog.service.configuration import AccessSection

__all__ = [
    "RELOAD_S",
    "TOKENS_BYTES_MAX",
    "LiveAccess",
    "access_of",
    "append_token",
    "entry_text",
    "new_token",
    "read_token",
    "read_tokens",
]

TOKENS_BYTES_MAX: Final = 4_194_304
"""Largest tokens file that is read, bytes: a thousand tokens with a hundred patterns each fit."""

RELOAD_S: Final = 1.0
"""How long a token that was removed from the file is still good, seconds; looking costs a
microsecond each time."""

_log: Final = logging.getLogger(__name__)


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    tokens: tuple[TokenEntry, ...] = ()


def new_token() -> str:
    """Return a token that nobody had before, of the system's random generator."""
    return token_text(secrets.token_bytes(TOKEN_RANDOM_BYTES))


def entry_text(entry: TokenEntry, table: str = "tokens") -> str:
    """Return an entry as TOML.

    Args:
        entry: The entry.
        table: Its table: `tokens` in a tokens file, `access.tokens` in the configuration.
    """
    patterns = ", ".join(map(_quoted, entry.patterns))
    lines = [
        f"[[{table}]]",
        f"actor = {_quoted(entry.actor)}",
        f'role = "{entry.role}"',
        *([f"patterns = [{patterns}]"] if patterns else []),
        f'hash = "{entry.hash}"',
    ]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    # TOML's basic strings take JSON's escapes, but for DEL, which no actor or pattern needs.
    return msgspec.json.encode(text).decode().replace("\x7f", "\\u007f")


def append_token(path: Path, entry: TokenEntry) -> None:
    """Add an entry to a tokens file, making it for its owner alone where there is none.

    Durable on return. One write, so that a service that reads meanwhile sees it whole or not.

    Raises:
        InvalidConfiguration: The file holds something else, or the entry does not fit to it.
    """
    found = read_tokens(path) if path.exists() else ()
    Access((*found, entry))
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    with os.fdopen(descriptor, "wb", buffering=0) as file:
        file.write(("\n" + entry_text(entry)).encode())
        os.fsync(file.fileno())


def read_tokens(path: Path) -> tuple[TokenEntry, ...]:
    """Return the entries of a tokens file.

    Raises:
        InvalidConfiguration: It cannot be read, is no TOML, holds anything but `[[tokens]]` with
            their fields, or is larger than `TOKENS_BYTES_MAX`.
    """
    text = _text(path, TOKENS_BYTES_MAX)
    try:
        return msgspec.convert(tomllib.loads(text), _File).tokens
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        msg = f"tokens file {path}: {error}"
        raise InvalidConfiguration(msg, hint="belog token create prints entries") from error


def read_token(token: str | None, token_file: str | None) -> str | None:
    """Return the token that a client is configured with; None for none.

    Args:
        token: The token itself.
        token_file: A file that holds it; a line end behind it is left out.

    Raises:
        InvalidConfiguration: The file cannot be read, or is longer than a token.
    """
    if token_file is None:
        return token
    return _text(Path(token_file), TOKEN_CHARS_MAX).strip()


def _text(path: Path, bytes_max: int) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(bytes_max + 1)
    except OSError as error:
        msg = f"{path} cannot be read: {error.strerror}"
        raise InvalidConfiguration(msg) from error
    if len(data) > bytes_max:
        msg = f"{path} is larger than {bytes_max} bytes"
        raise InvalidConfiguration(msg)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        msg = f"{path} is no UTF-8"
        raise InvalidConfiguration(msg) from error


def access_of(section: AccessSection) -> Access:
    """Return the access that is configured, as the tokens file is now.

    Open only where neither a file nor a token is configured: with a file without entries nobody is
    let in.

    Raises:
        InvalidConfiguration: The file or an entry cannot be used.
    """
    if section.tokens_file is None and not section.tokens:
        return Access.open()
    named = () if section.tokens_file is None else read_tokens(Path(section.tokens_file))
    return Access((*section.tokens, *named))


class LiveAccess(Access):
    """The access that is configured, as the tokens file is at each moment. Thread-safe.

    The file is looked at once in `RELOAD_S`, and read where it changed.
    A file that cannot be used is reported to the log, and what was read before stays in force;
    a service without a tokens file never changes.
    """

    def __init__(self, section: AccessSection) -> None:
        """Read the file for the first time.

        Raises:
            InvalidConfiguration: The file or an entry cannot be used.
        """
        super().__init__(())
        self._section = section
        self._lock = threading.Lock()
        self._mark = self._look()
        self._access = access_of(section)
        self._next_look = time.monotonic() + RELOAD_S

    @property
    def is_open(self) -> bool:
        """Whether everyone is let in."""
        return self._access.is_open

    def authenticate(self, token: str | None) -> Grant:
        """Return what a client may do, as `Access.authenticate`.

        Raises:
            Unauthenticated: There is no token, or it is not known.
        """
        if self._section.tokens_file is not None and time.monotonic() >= self._next_look:
            self._reload()
        return self._access.authenticate(token)

    def _look(self) -> tuple[int, ...] | None:
        if self._section.tokens_file is None:
            return None
        try:
            found = Path(self._section.tokens_file).stat()
        except OSError:
            # Reading it says what is wrong, once.
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

    def _reload(self) -> None:
        with self._lock:
            self._next_look = time.monotonic() + RELOAD_S
            mark = self._look()
            if mark == self._mark:
                return
            self._mark = mark
            try:
                self._access = access_of(self._section)
            except BelogError as error:
                _log.error("tokens stay as they were: %s", error)
