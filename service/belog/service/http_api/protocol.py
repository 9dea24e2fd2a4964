"""The HTTP connection with bounds that the server itself does not have.

A head that comes drop by drop or has no end, a connection that says nothing, and a client that does
not take its answer: each would hold its place and its memory for as long as it likes.
"""

import asyncio
import logging
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from belog.service.http_api.settings import (
    HEADER_BYTES_MAX,
    HEADER_S_MAX,
    STALLED_S_MAX,
    URL_BYTES_MAX,
)

__all__ = ["BoundedProtocol"]

LOGGER: Final = logging.getLogger("belog.service.http")

HEAD_BYTES_MAX: Final = URL_BYTES_MAX + HEADER_BYTES_MAX
"""Of a request up to its body, bytes. What is a little above one of its parts' bounds still gets a
proper answer from the gate."""

_TOO_LARGE: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-length: 0\r\nconnection: close\r\n\r\n"
)


class BoundedProtocol(HttpToolsProtocol):
    """One connection; what uvicorn makes for each. Belongs to the loop."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - uvicorn's own
        """Take what uvicorn gives."""
        super().__init__(*args, **kwargs)
        self._head_bytes = 0
        self._in_head = True
        self._head_timer: asyncio.TimerHandle | None = None
        self._stalled_timer: asyncio.TimerHandle | None = None

    # --- the head

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._await_head()

    def _await_head(self) -> None:
        self._in_head = True
        self._head_bytes = 0
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEADER_S_MAX, self._cut, "sent no request")

    def on_message_begin(self) -> None:
        """Note that a head begins."""
        super().on_message_begin()
        self._await_head()

    def on_headers_complete(self) -> None:
        """Note that it has ended."""
        self._in_head = False
        self._end_head_timer()
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        """Take bytes; of a head no more than `HEAD_BYTES_MAX`."""
        super().data_received(data)
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX and not self.transport.is_closing():
                self.transport.write(_TOO_LARGE)
                self.transport.close()

    # --- the answer

    def pause_writing(self) -> None:
        """Note that the client does not take its answer."""
        super().pause_writing()
        if self._stalled_timer is None:
            self._stalled_timer = self.loop.call_later(STALLED_S_MAX, self._cut, "took no answer")

    def resume_writing(self) -> None:
        """Note that it goes on."""
        self._end_stalled_timer()
        super().resume_writing()

    # --- the end

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        self._end_head_timer()
        self._end_stalled_timer()
        super().connection_lost(exc)

    def _cut(self, why: str) -> None:
        LOGGER.info("a client was cut off: it %s in time", why)
        # Not closed: that would wait until what was written is taken.
        self.transport.abort()

    def _end_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _end_stalled_timer(self) -> None:
        if self._stalled_timer is not None:
            self._stalled_timer.cancel()
            self._stalled_timer = None
