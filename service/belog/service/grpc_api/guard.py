"""What stands before every rpc: who calls and whether he may, how many call, how errors look."""

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from contextvars import ContextVar
from typing import Any, Final, NoReturn, Protocol, TypeAlias, cast

import grpc
from google.protobuf.message import DecodeError, Message
from google.rpc.status_pb2 import Status

from belog.schemas.errors import BelogError, Forbidden, InvalidInput, Overloaded, status_of
from belog.service.access import Grant
from belog.service.grpc_api.rules import RULES, Rule
from belog.service.instance import Instance
from belog.service.structured_logs import bind
from belog.service.wire_answers import problem_to_wire

__all__ = [
    "DETAILS_KEY",
    "SINCE_KEY",
    "Authenticator",
    "Context",
    "Guard",
    "current_grant",
    "send_start",
    "which_log",
]

LOGGER: Final = logging.getLogger("belog.service.grpc")

DETAILS_KEY: Final = "grpc-status-details-bin"
"""Trailing metadata that holds a `google.rpc.Status`, by gRPC's convention for rich errors."""

SINCE_KEY: Final = "belog-since"
"""Initial metadata of a stream: the first index that it looks at."""

PROBLEM_TEXT_CHARS_MAX: Final = 500
"""Most characters of a message, a hint or a subject where a problem is large: peers refuse metadata
of more than 8 kB, and each character may take four bytes of Base64 and more."""

PROBLEM_BYTES_MAX: Final = 3_000
"""From where a problem is large, bytes."""

_GRANT: ContextVar[Grant] = ContextVar("belog grant")

Context = grpc.aio.ServicerContext[Any, Any]
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any] | None"
Unary = Callable[[Message, Context], Awaitable[Message]]
Stream = Callable[[Message, Context], AsyncGenerator[Message]]


class Authenticator(Protocol):
    """Knows tokens; an `Access` is one."""

    def authenticate(self, token: str | None) -> Grant:
        """Return what a client may do; see `Access.authenticate`."""
        ...


def current_grant() -> Grant:
    """Return what the caller of the rpc under way may do; for behaviours behind `Guard`."""
    return _GRANT.get()


def which_log(instance: Instance) -> tuple[tuple[str, str], ...]:
    """Return the metadata that say which log answers, and which run of a service."""
    return tuple((name.decode(), value.decode()) for name, value in instance.which)


async def send_start(context: Context, instance: Instance, since_idx: int) -> None:
    """Send the initial metadata of a stream, so that its reader knows that it has begun.

    Args:
        context: The call's.
        instance: Of the log.
        since_idx: First index that the stream looks at.
    """
    await context.send_initial_metadata((*which_log(instance), (SINCE_KEY, str(since_idx))))


class Guard(grpc.aio.ServerInterceptor):
    """Lets in who may come. Belongs to one event loop.

    Who has no token is refused before his request is parsed. A request that cannot be parsed, and
    every `BelogError`, is answered with its status code, and with a `Problem` in the details.

    Attributes:
        streams: How many streams are under way.
    """

    def __init__(
        self, access: Authenticator, *, streams_max: int, metadata: Sequence[tuple[str, str]] = ()
    ) -> None:
        """Ask these tokens, and let so many streams be under way.

        Args:
            access: Knows the tokens.
            streams_max: Streams at once.
            metadata: To send after every answer.
        """
        self.streams = 0
        self._metadata = tuple(metadata)
        self._access = access
        self._streams_max = streams_max

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """Return the handler of a method behind its rule; none where there is no such method."""
        found = await continuation(handler_call_details)
        rule = RULES.get(handler_call_details.method)
        if found is None or (rule is not None and rule.role is None):
            return found
        handler = cast("Any", found)
        parse = cast("Callable[[bytes], Message]", handler.request_deserializer)
        if handler.response_streaming:
            streamed: Any = self._stream(rule, parse, handler.unary_stream)
            return grpc.unary_stream_rpc_method_handler(
                streamed, response_serializer=handler.response_serializer
            )
        answered: Any = self._answer(rule, parse, handler.unary_unary)
        return grpc.unary_unary_rpc_method_handler(
            answered, response_serializer=handler.response_serializer
        )

    def _answer(
        self, rule: Rule | None, parse: Callable[[bytes], Message], behaviour: Unary
    ) -> Callable[[bytes, Context], Awaitable[Message]]:
        async def guarded(data: bytes, context: Context) -> Message:
            try:
                context.set_trailing_metadata(self._metadata)
                return await behaviour(self._admit(rule, parse, data, context), context)
            except Exception as error:  # noqa: BLE001 - answered, and logged where nobody foresaw it
                await _refuse(context, error)

        return guarded

    def _stream(
        self, rule: Rule | None, parse: Callable[[bytes], Message], behaviour: Stream
    ) -> Callable[[bytes, Context], Awaitable[None]]:
        # It writes instead of yielding, so that a cancelled call closes the behaviour at once.
        async def guarded(data: bytes, context: Context) -> None:
            try:
                request = self._admit(rule, parse, data, context)
                self._take_stream()
                try:
                    async with aclosing(behaviour(request, context)) as messages:
                        async for message in messages:
                            await context.write(message)
                finally:
                    self.streams -= 1
            except Exception as error:  # noqa: BLE001 - as above
                await _refuse(context, error)

        return guarded

    def _take_stream(self) -> None:
        if self.streams >= self._streams_max:
            msg = f"{self.streams} streams are under way"
            raise Overloaded(msg, hint="try again later, or ask by ListEvents")
        self.streams += 1

    def _admit(
        self, rule: Rule | None, parse: Callable[[bytes], Message], data: bytes, context: Context
    ) -> Message:
        if rule is None or rule.role is None:
            msg = "nobody may call this: it has no rule"
            raise Forbidden(msg)
        grant = self._access.authenticate(_token(context))
        bind(actor=grant.actor or None)
        grant.require(rule.role)
        try:
            request = parse(data)
        except DecodeError as error:
            msg = f"the request cannot be read: {error}"
            raise InvalidInput(msg) from error
        if rule.refs is not None and grant.is_restricted:
            grant.check_refs(rule.refs(request))
        _GRANT.set(grant)
        return request


def _token(context: Context) -> str | None:
    for key, value in context.invocation_metadata() or ():
        if key == "authorization" and isinstance(value, str):
            scheme, _, token = value.partition(" ")
            return token.strip() if scheme.lower() == "bearer" else None
    return None


async def _refuse(context: Context, error: Exception) -> NoReturn:
    """End the call with the status of an error."""
    if not isinstance(error, BelogError):
        LOGGER.error("an rpc failed", exc_info=error)
        await context.abort(grpc.StatusCode.INTERNAL, "the service failed; its log says why")
    bind(error=error)
    code = grpc.StatusCode[status_of(error).grpc]
    problem = problem_to_wire(error)
    if problem.ByteSize() > PROBLEM_BYTES_MAX:
        problem.message = problem.message[:PROBLEM_TEXT_CHARS_MAX]
        problem.hint = problem.hint[:PROBLEM_TEXT_CHARS_MAX]
        problem.subject = problem.subject[:PROBLEM_TEXT_CHARS_MAX]
    number, _ = code.value
    status = Status(code=number, message=problem.message)
    status.details.add().Pack(problem)
    await context.abort(
        code, problem.message, trailing_metadata=((DETAILS_KEY, status.SerializeToString()),)
    )
