"""The dashboard: one page with its script and style, which asks the service's own HTTP API."""

from importlib.resources import files
from typing import Final

from msgspec import Struct

from belog.service.http_api.answers import Answer, Header
from belog.service.http_api.call import Call
from belog.service.http_api.gate import Handler
from belog.service.http_api.route_table import Reach, RouteEntry

__all__ = ["PAGES", "Page", "page_handler"]

CACHE_S: Final = 300
"""How long browsers keep the files, seconds: short beside an upgrade, long beside a visit."""

_POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    b"base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_HEADERS: Final[tuple[Header, ...]] = (
    (b"content-security-policy", _POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", f"max-age={CACHE_S}".encode()),
)


class Page(Struct, frozen=True):
    """A file that is answered as it is."""

    route: RouteEntry
    file: str


def _page(path: str, file: str, media_type: str, summary: str) -> Page:
    entry = RouteEntry(
        method="GET",
        path=path,
        # It holds nothing of the log; what it asks for needs a token as ever.
        reach=Reach.OPEN,
        summary=summary,
        media_type=media_type,
        tag="service",
    )
    return Page(entry, file)


PAGES: Final = (
    _page("/", "index.html", "text/html", "The dashboard"),
    _page("/dashboard.js", "dashboard.js", "text/javascript", "The dashboard's script"),
    _page("/dashboard.css", "dashboard.css", "text/css", "The dashboard's style"),
)
"""Everything the dashboard consists of."""


def page_handler(page: Page) -> Handler:
    """Return what answers a page; for `add_route`. Reads the file now, once."""
    body = (files(__name__) / page.file).read_bytes()
    content_type = f"{page.route.media_type}; charset=utf-8".encode()

    async def get_page(call: Call) -> Answer:
        del call
        return Answer(body, content_type=content_type, headers=_HEADERS)

    return get_page
