"""Requests over HTTP, blocking and not; the only module that knows the library for it."""

import ssl
from collections.abc import Mapping
from typing import Any, Final

import httpx

from belog.client.settings import ClientSettings
from belog.client.steps import Lost, Request, Response
from belog.schemas.errors import InvalidConfiguration, InvalidUri

__all__ = ["ANSWER_BYTES_MAX", "CONNECTIONS_MAX", "CONNECT_S", "AsyncTransport", "Transport"]

CONNECT_S: Final = 5.0
"""How long a connection may take to be made, seconds: a host that is not there is noticed well
within the time that a call is tried again."""

CONNECTIONS_MAX: Final = 100
"""Connections of one client: as many as its threads or tasks are likely to wait at once."""

ANSWER_BYTES_MAX: Final = 256 * 1024 * 1024
"""Largest answer, bytes, decompressed: the largest page of a service (16 MiB, and one event of
some MB as JSON) many times over; a peer that sends more is none of ours."""

_NOT_SENT: Final = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.UnsupportedProtocol,
    httpx.ProxyError,
)


def _context(settings: ClientSettings) -> ssl.SSLContext:
    if settings.url.startswith("http://"):
        # Trusts nobody: it is not used, and reading all CAs takes longer than a request.
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context = ssl.create_default_context(cafile=settings.ca_file)
        if settings.cert_file is not None:
            context.load_cert_chain(settings.cert_file, settings.key_file)
    except (OSError, ValueError) as error:
        msg = f"a certificate, a key or CAs cannot be read: {error}"
        raise InvalidConfiguration(msg, hint="they are files in PEM") from error
    return context


def _options(settings: ClientSettings) -> dict[str, Any]:
    return {
        "headers": settings.headers,
        "verify": _context(settings),
        "limits": httpx.Limits(max_connections=CONNECTIONS_MAX),
        "follow_redirects": False,
        # Else a .netrc would take the place of the token.
        "auth": _NoAuth(),
    }


class _NoAuth(httpx.Auth):
    """What is shown stands in the headers."""


def _arguments(url: str, request: Request) -> dict[str, Any]:
    headers: Mapping[str, str] = request.headers
    if request.body is not None:
        headers = {**headers, "content-type": "application/json"}
    return {
        "method": request.method,
        "url": url + request.path,
        "content": request.body,
        "headers": headers,
        "timeout": httpx.Timeout(request.timeout_s, connect=min(CONNECT_S, request.timeout_s)),
    }


def _response(response: httpx.Response, chunks: list[bytes]) -> Response:
    return Response(response.status_code, dict(response.headers), b"".join(chunks))


def _lost(error: httpx.HTTPError | httpx.InvalidURL, url: str) -> Lost:
    if isinstance(error, httpx.InvalidURL):
        msg = f"the URL cannot be used: {error}"
        raise InvalidUri(msg) from error
    reason = str(error) or type(error).__name__
    was_sent = not isinstance(error, _NOT_SENT)
    return Lost(was_sent, reason, _hint(error, reason, url))


def _hint(error: httpx.HTTPError, reason: str, url: str) -> str:
    """Return what to look at, where what went wrong looks like one with TLS and one without."""
    if url.startswith("https:"):
        # How OpenSSL calls an answer that is no TLS.
        if "WRONG_VERSION_NUMBER" in reason or "record layer failure" in reason:
            return "is it served without TLS? then its URL begins with http://"
        if "CERTIFICATE_VERIFY_FAILED" in reason:
            return "its certificate is not to be trusted so: name its CA with client.ca_file"
    elif isinstance(error, (httpx.RemoteProtocolError, httpx.ReadError)):
        return "is the service running? if it is served with TLS, its URL begins with https://"
    return "is the service running?"


_TOO_LARGE: Final = Lost(was_sent=True, reason=f"the answer is over {ANSWER_BYTES_MAX} bytes")


_CLOSED: Final = Lost(was_sent=True, reason="the client was closed")


class Transport:
    """Sends requests and waits. Thread-safe."""

    def __init__(self, settings: ClientSettings) -> None:
        """Connect to nothing yet.

        Raises:
            InvalidConfiguration: A file for TLS cannot be used.
        """
        self._url = settings.url
        self._http = httpx.Client(**_options(settings))

    def send(self, request: Request) -> Response | Lost:
        """Return the answer, or that there is none."""
        try:
            with self._http.stream(**_arguments(self._url, request)) as response:
                chunks: list[bytes] = []
                size = 0
                for chunk in response.iter_bytes():
                    size += len(chunk)
                    if size > ANSWER_BYTES_MAX:
                        return _TOO_LARGE
                    chunks.append(chunk)
                return _response(response, chunks)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return _lost(error, self._url)
        except Exception:  # whatever a connection that is closed under a request leads to
            if not self._http.is_closed:
                raise
            return _CLOSED

    def close(self) -> None:
        """Close all connections. Idempotent."""
        self._http.close()


class AsyncTransport:
    """Sends requests in an event loop."""

    def __init__(self, settings: ClientSettings) -> None:
        """Connect to nothing yet; see `Transport`."""
        self._url = settings.url
        self._http = httpx.AsyncClient(**_options(settings))

    async def send(self, request: Request) -> Response | Lost:
        """Return the answer, or that there is none."""
        try:
            async with self._http.stream(**_arguments(self._url, request)) as response:
                chunks: list[bytes] = []
                size = 0
                async for chunk in response.aiter_bytes():
                    size += len(chunk)
                    if size > ANSWER_BYTES_MAX:
                        return _TOO_LARGE
                    chunks.append(chunk)
                return _response(response, chunks)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return _lost(error, self._url)
        except Exception:  # whatever a connection that is closed under a request leads to
            if not self._http.is_closed:
                raise
            return _CLOSED

    async def close(self) -> None:
        """Close all connections. Idempotent."""
        await self._http.aclose()
