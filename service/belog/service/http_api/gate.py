"""The one door of the HTTP service: what is asked for, by whom, and whether he may."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from belog.processors.rows import TaskRow, task_key
from belog.schemas.errors import (
    BelogError,
    Closed,
    Forbidden,
    InvalidInput,
    LimitExceeded,
    NotFound,
    Unauthenticated,
)
from belog.service.access import Access, Grant, Role
from belog.service.binding import is_own_host
from belog.service.http_api.answers import Answer, problem
from belog.service.http_api.call import (
    Call,
    Disconnected,
    Refused,
    Slots,
    header_of,
    send_whole,
)
from belog.service.http_api.parameters import path_text
from belog.service.http_api.route_table import Found, Reach, RouteEntry, RouteTable
from belog.service.http_api.settings import HEADER_BYTES_MAX, URL_BYTES_MAX, HttpSettings
from belog.service.instance import Instance
from belog.service.structured_logs import bind

__all__ = ["Endpoint", "Gate", "Handler"]

LOGGER: Final = logging.getLogger("belog.service.http")

Handler = Callable[[Call], Awaitable[Answer | None]]
"""What a route does. None: it has sent its answer itself."""

CALL: Final = "belog.call"
"""Where the gate leaves the call in the scope."""

HOSTS_SEEN_MAX: Final = 64
"""Values of `Host` that are known to be good: as many as a service has names, each with and
without its port; further ones are only looked at each time."""

_NOBODY: Final = Grant("", Role.READ)
_METHODS_WITH_BODY: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})


class Endpoint:
    """A route as an ASGI application: runs its handler, sends what comes of it."""

    def __init__(self, handler: Handler) -> None:
        """Wrap a handler."""
        self._handler = handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        del receive, send  # the call has them
        call: Call = scope[CALL]
        answer: Answer | None
        try:
            answer = await self._handler(call)
        except Disconnected:
            return
        except Refused as refused:
            answer = refused.answer
        except BelogError as error:
            bind(error=error)
            answer = problem(error)
            if answer.status == INTERNAL.status and not isinstance(error, Closed):
                LOGGER.exception("%s %s failed", scope["method"], call.entry.path)
        except Exception:
            LOGGER.exception("%s %s failed", scope["method"], call.entry.path)
            answer = INTERNAL
        if answer is not None:
            await call.answer(answer)


INTERNAL: Final = problem(
    BelogError("something went wrong here; the service's log says what"), code="internal"
)


class Gate:
    """Pure ASGI: finds the route in the table, checks the token, the role and the partition."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        instance: Instance,
        access: Access,
        settings: HttpSettings,
        table: RouteTable,
        slots: Slots,
    ) -> None:
        """Stand before an application."""
        self._app = app
        self._instance = instance
        self._access = access
        self._settings = settings
        self._table = table
        self._slots = slots
        self._hosts_seen: set[bytes] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or answer why not."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            self._check_host(scope)
            found, entry = self._route(scope)
            bind(route=entry.path)
            grant = self._grant(scope, entry)
            bind(actor=grant.actor or None)
            _check_body_type(scope, entry)
            await self._check_reach(grant, entry, found)
        except Refused as refused:
            await _send_answer(send, refused.answer)
            return
        except BelogError as error:
            bind(error=error)
            await _send_answer(send, problem(error))
            return
        except Exception:
            LOGGER.exception("%s could not be let in", scope["method"])
            await _send_answer(send, INTERNAL)
            return
        scope[CALL] = Call(
            self._instance,
            self._settings,
            self._slots,
            entry=entry,
            grant=grant,
            names=found.names,
            recheck=partial(self._grant, scope, entry),
            scope=scope,
            receive=receive,
            send=send,
        )
        endpoint = self._table.endpoint(entry)
        if endpoint is not None:
            # Looked up already: the router would only look again.
            await endpoint(scope, receive, send)
            return
        # The router sees paths as they were sent, each ref in one segment.
        scope["path"] = found.path
        await self._app(scope, receive, send)

    def _check_host(self, scope: Scope) -> None:
        """Refuse a name that is not the service's, where no token is needed to read.

        It would be that of a page of another site, which has it resolve to this machine.
        """
        names = self._settings.hosts
        if names is None or not self._access.is_open:
            return
        host = header_of(scope, b"host")
        # Browsers always send one.
        if host is None or host in self._hosts_seen:
            return
        if not is_own_host(host.decode("latin-1"), names):
            error = Forbidden(
                "without tokens this service does not answer to the name that it was called by",
                hint="call it localhost or by its address, or add the name to server.hosts",
            )
            raise Refused(problem(error, status=421, code="misdirected_request"))
        if len(self._hosts_seen) < HOSTS_SEEN_MAX:
            self._hosts_seen.add(host)

    def _route(self, scope: Scope) -> tuple[Found, RouteEntry]:
        raw: bytes = scope.get("raw_path") or scope["path"].encode()
        size = len(raw) + len(scope["query_string"])
        if size > URL_BYTES_MAX:
            raise Refused(
                problem(_too_long("the URL", "URL_BYTES_MAX", URL_BYTES_MAX, size), status=414)
            )
        size = 0
        for name, value in scope["headers"]:  # a loop: a generator's sum takes twice as long
            size += len(name) + len(value)
        if size > HEADER_BYTES_MAX:
            too_long = _too_long("the headers", "HEADER_BYTES_MAX", HEADER_BYTES_MAX, size)
            raise Refused(problem(too_long, status=431))
        try:
            found = self._table.find(raw.decode("ascii"))
        except UnicodeDecodeError as error:
            msg = "the path is not percent-encoded"
            raise InvalidInput(msg) from error
        if found is None:
            raise NotFound("there is no such route", hint="GET /openapi.json lists all")
        method = scope["method"]
        entry = found.methods.get("GET" if method == "HEAD" else method)
        if entry is None:
            allowed = ", ".join(sorted(found.methods))
            refusal = InvalidInput(f"{method} is not for this route, which has {allowed}")
            headers = ((b"allow", allowed.encode()),)
            raise Refused(problem(refusal, status=405, code="method_not_allowed", headers=headers))
        return found, entry

    def _grant(self, scope: Scope, entry: RouteEntry) -> Grant:
        if entry.reach is Reach.OPEN:
            return self._grant_if_any(scope)
        grant = self._access.authenticate(_token(scope))
        grant.require(entry.role)
        if self._access.is_open and scope["method"] in _METHODS_WITH_BODY:
            _check_origin(scope)
        if entry.reach is Reach.WHOLE and grant.is_restricted:
            msg = f"{grant.actor!r} is for some partitions only, this is about all"
            raise Forbidden(msg, hint="use a token without patterns")
        return grant

    def _grant_if_any(self, scope: Scope) -> Grant:
        try:
            return self._access.authenticate(_token(scope))
        except Unauthenticated:
            return _NOBODY

    async def _check_reach(self, grant: Grant, entry: RouteEntry, found: Found) -> None:
        if not grant.is_restricted or not found.names:
            return
        if entry.reach is Reach.PARTITION:
            grant.check_refs((path_text(found.names["ref"]),))
        elif entry.reach is Reach.SUBJECT:
            names = {name: path_text(part) for name, part in found.names.items()}
            refs = await self._instance.calls.run(_refs_in, self._instance, names)
            if refs is None:
                raise NotFound("there is no such thing, or it has no partition")
            if entry.role is Role.READ:
                if not grant.sees(refs):
                    msg = f"{grant.actor!r} is for none of its partitions"
                    raise Forbidden(msg, hint=f"its patterns: {', '.join(grant.patterns)}")
            else:
                grant.check_refs(refs)


def _refs_in(instance: Instance, names: dict[str, str]) -> Sequence[str] | None:
    """Return the partitions of the subject that a path names, None where it was never seen."""
    if "task_id" in names:
        key = task_key(names["build_request_id"], names["task_id"])
        row = instance.queries.tables.get(TaskRow, key).value
        return None if row is None else row.outputs
    if "job_run_id" in names:
        return instance.refs_of("job_run", names["job_run_id"])
    return instance.refs_of("build", names["build_request_id"])


def _token(scope: Scope) -> str | None:
    given = header_of(scope, b"authorization")
    if given is None:
        return None
    scheme, _, token = given.decode("latin-1").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def _check_origin(scope: Scope) -> None:
    """Refuse to let a page of another site write with what its visitor may do without a token."""
    origin = header_of(scope, b"origin")
    if origin is None:
        return
    host = header_of(scope, b"host") or b""
    if urlsplit(origin.decode("latin-1")).netloc.lower() != host.decode("latin-1").lower():
        msg = "a page of another origin may not write here without a token"
        raise Forbidden(msg, hint="configure tokens: belog token create")


def _check_body_type(scope: Scope, entry: RouteEntry) -> None:
    if not entry.body:
        return
    kind = header_of(scope, b"content-type")
    if kind is None and entry.body_is_optional:
        return
    bare = b"" if kind is None else kind.partition(b";")[0].strip().lower()
    if bare != b"application/json" and not (bare[:12] == b"application/" and bare[-5:] == b"+json"):
        error = InvalidInput("the body is JSON", hint="send Content-Type: application/json")
        headers = ((b"accept-post", b"application/json"),)
        raise Refused(problem(error, status=415, code="unsupported_media_type", headers=headers))


def _too_long(what: str, name: str, bound: int, size: int) -> LimitExceeded:
    return LimitExceeded(f"{what}, in bytes", limit=name, limit_value=bound, value=size)


async def _send_answer(send: Send, answer: Answer) -> None:
    headers = [(b"content-type", answer.content_type), *answer.headers]
    await send_whole(send, answer.status, headers, answer.body)
