"""The OpenAPI document, and the page that shows it."""

import re
from base64 import b64encode
from hashlib import sha256
from importlib.resources import files
from typing import Any, Final

from fastapi import FastAPI

from belog.schemas.wire_json import to_json
from belog.service.http_api.answers import Answer
from belog.service.http_api.call import Call
from belog.service.http_api.openapi import document
from belog.service.http_api.route_table import RouteTable

__all__ = ["get_docs", "get_openapi", "openapi_document"]


_PAGE: Final = (files(__package__ or "") / "docs.html").read_bytes()


def _hash_of(tag: bytes) -> str:
    """Return the source expression of an inline element (CSP level 3, section 2.3.1)."""
    found = re.search(rb"<%b>(.*?)</%b>" % (tag, tag), _PAGE, re.DOTALL)
    assert found is not None  # noqa: S101 - the page has both
    return f"'sha256-{b64encode(sha256(found[1]).digest()).decode()}'"


_POLICY: Final = (
    f"default-src 'none'; script-src {_hash_of(b'script')}; style-src {_hash_of(b'style')}; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
).encode()
"""Only what stands in the page itself runs, and only this service is asked."""


def openapi_document(app: FastAPI) -> dict[str, Any]:
    """Return the document of an application with all routes that it has by now."""
    table: RouteTable = app.state.table
    return document(table.entries, app.title)


async def get_openapi(call: Call) -> Answer:
    """Answer `GET /openapi.json`."""
    state = call.scope["app"].state
    if state.openapi is None:
        # Made when it is first asked for: by then all routes are there.
        state.openapi = to_json(openapi_document(call.scope["app"]))
    return Answer(state.openapi)


async def get_docs(call: Call) -> Answer:
    """Answer `GET /docs`."""
    del call
    return Answer(
        _PAGE,
        content_type=b"text/html; charset=utf-8",
        headers=((b"content-security-policy", _POLICY),),
    )
