"""The OpenAPI document, and the page that shows it."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.docs import get_swagger_ui_html

from belog.schemas.wire_json import to_json
from belog.service.http_api.answers import Answer
from belog.service.http_api.call import Call
from belog.service.http_api.openapi import document
from belog.service.http_api.route_table import RouteTable

__all__ = ["get_docs", "get_openapi", "openapi_document"]


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
    page = get_swagger_ui_html(openapi_url="openapi.json", title=call.settings.title)
    return Answer(bytes(page.body), content_type=b"text/html; charset=utf-8")
