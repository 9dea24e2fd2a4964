"""What a client is made with; the same for both. Pure."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypedDict
from urllib.parse import urlsplit

from msgspec import Struct

from belog.client.steps import ANSWER_TIMEOUT_S, RETRY_S
from belog.schemas.envelope import Event
from belog.schemas.errors import BelogError, InvalidConfiguration, InvalidUri

__all__ = ["ClientOptions", "ClientSettings", "sender_options", "settings_of"]

TOKEN_CHARS_MAX: Final = 1_024
"""Longest token, characters; a service looks at no longer ones."""


SENDER_RETRY_S: Final = 1.0
"""How long a spool's sender tries by itself, seconds, before it says that the log is away."""


class ClientOptions(TypedDict, total=False):
    """Keyword arguments of `Client` and `AsyncClient`; all may be left out."""

    token: str | None
    """Shown to the service as `Authorization: Bearer`."""
    actor: str | None
    """Who writes, where the service knows it from no token. Left out, the service says who."""
    ca_file: str | None
    """CAs to trust instead of the system's, PEM."""
    cert_file: str | None
    """A certificate to show, PEM."""
    key_file: str | None
    """Its key, PEM; None where it is in the same file."""
    retry_s: float
    """How long a call is tried again while the service is away or overloaded, seconds."""
    timeout_s: float
    """How long an answer may take beyond what was asked to be waited for, seconds."""
    spool: str | Path | None
    """A folder in which `record` keeps events while the service is away."""
    on_conflict: Callable[[Event, BelogError], None] | None
    """Told of events that were kept and that the log refused when they were sent; called in the
    thread that sends."""


class ClientSettings(Struct, frozen=True, kw_only=True):
    """Checked."""

    url: str
    """Without user, query and slash at its end."""
    headers: Mapping[str, str]
    actor: str
    ca_file: str | None
    cert_file: str | None
    key_file: str | None
    retry_s: float
    timeout_s: float


def settings_of(url: str, options: ClientOptions) -> ClientSettings:
    """Check what a client is made with.

    Raises:
        InvalidUri: The URL is not one of a service.
        InvalidConfiguration: The token cannot be sent, or a time is not positive.
    """
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        msg = "a service has a URL such as http://host:8000"
        raise InvalidUri(msg, hint="a log itself is opened by its own URI, with --log or open_log")
    if parts.username is not None or parts.query or parts.fragment:
        msg = f"the URL of a service has no user, query or fragment: {parts.hostname}"
        raise InvalidUri(msg, hint="give the token by its own name")
    headers: dict[str, str] = {"accept": "application/json"}
    if (token := options.get("token")) is not None:
        if not token or len(token) > TOKEN_CHARS_MAX or not _is_plain(token):
            msg = "the token is empty, too long, or has characters that no token has"
            raise InvalidConfiguration(msg, hint="is there a line break at its end?")
        headers["authorization"] = f"Bearer {token}"
    retry_s = options.get("retry_s", RETRY_S)
    timeout_s = options.get("timeout_s", ANSWER_TIMEOUT_S)
    if retry_s < 0 or timeout_s <= 0:
        msg = "retry_s is at least 0, timeout_s more"
        raise InvalidConfiguration(msg)
    return ClientSettings(
        url=f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}",
        headers=headers,
        actor=options.get("actor") or "",
        ca_file=options.get("ca_file"),
        cert_file=options.get("cert_file"),
        key_file=options.get("key_file"),
        retry_s=retry_s,
        timeout_s=timeout_s,
    )


def _is_plain(token: str) -> bool:
    return token.isascii() and token.isprintable() and " " not in token


def sender_options(options: ClientOptions) -> ClientOptions:
    """Return the options of the client that sends for a spool: impatient, for it comes back."""
    plain = ClientOptions(**options)
    plain.pop("spool", None)
    plain.pop("on_conflict", None)
    plain["retry_s"] = min(SENDER_RETRY_S, options.get("retry_s", SENDER_RETRY_S))
    return plain
