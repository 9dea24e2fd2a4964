"""Watches gRPC calls: metrics, a span and a line in the access log for each."""

import asyncio
import inspect
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, nullcontext
from typing import Any, Final, TypeAlias, cast

import grpc

from belog.service.observation import Observation
from belog.service.structured_logs import request_fields

__all__ = ["GrpcObserver"]

ACCESS_LOGGER: Final = logging.getLogger("belog.access")

UNKNOWN_METHOD: Final = "unknown"
"""The method of calls of what is not served: a client may name anything."""

_PROBES: Final = "grpc.health."
"""Asked every few seconds by programs: logged for who looks closely only."""

_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}
_FAULTS: Final = frozenset({"UNKNOWN", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNIMPLEMENTED"})
"""Codes that say that the service failed, rather than its caller."""

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any] | None"


class GrpcObserver(grpc.aio.ServerInterceptor):
    """An interceptor, to be put first. Belongs to one event loop.

    What stands behind it says by `bind` which `actor` a call has. Nothing of a request or of its
    metadata is kept but that and `traceparent`.
    """

    def __init__(self, observation: Observation) -> None:
        """Watch with these."""
        self._observation = observation

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """Return the handler of a method with this around it; none where there is no such one."""
        found = await continuation(handler_call_details)
        metrics = self._observation.metrics
        if found is None:
            if metrics is not None:
                metrics.grpc_answered(UNKNOWN_METHOD, "UNIMPLEMENTED", None)
            return None
        handler = cast("Any", found)
        make, behaviour = _parts(handler)
        if not (inspect.iscoroutinefunction(behaviour) or inspect.isasyncgenfunction(behaviour)):
            return found
        is_stream = bool(handler.request_streaming or handler.response_streaming)
        method = handler_call_details.method.lstrip("/")
        watched = self._watched(method, behaviour, is_stream=is_stream)
        return cast(
            "Handler",
            make(
                watched,
                request_deserializer=handler.request_deserializer,
                response_serializer=handler.response_serializer,
            ),
        )

    def _watched(
        self, method: str, behaviour: Callable[..., Any], *, is_stream: bool
    ) -> Callable[[Any, Context], Awaitable[Any]]:
        metrics, tracing = self._observation.metrics, self._observation.tracing

        async def watched(request: Any, context: Context) -> Any:  # noqa: ANN401 - any message
            started = time.perf_counter()
            if metrics is not None:
                metrics.grpc_in_progress += 1
                metrics.streams["grpc"] += is_stream
            span = nullcontext() if tracing is None else tracing.request(method, _carrier(context))
            code = "OK"
            with request_fields() as fields, span as within:
                try:
                    answer = await _run(behaviour(request, context), context)
                    code = _code_of(context)
                except asyncio.CancelledError:
                    code = "CANCELLED"
                    raise
                except BaseException:
                    code = _code_of(context)
                    code = "UNKNOWN" if code == "OK" else code
                    raise
                finally:
                    seconds = time.perf_counter() - started
                    self._observation.answered(fields)
                    if within is not None:
                        within.end(
                            method,
                            is_error=code in _FAULTS,
                            rpc__system="grpc",
                            rpc__method=method,
                            rpc__response__status_code=code,
                        )
                    if metrics is not None:
                        metrics.grpc_in_progress -= 1
                        metrics.streams["grpc"] -= is_stream
                        metrics.grpc_answered(method, code, None if is_stream else seconds)
                    _log(method, code, seconds)
                return answer

        return watched


def _parts(handler: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:  # noqa: ANN401 - untyped
    """Return what makes a handler of the same kind, and what it does."""
    if handler.request_streaming and handler.response_streaming:
        return grpc.stream_stream_rpc_method_handler, handler.stream_stream
    if handler.request_streaming:
        return grpc.stream_unary_rpc_method_handler, handler.stream_unary
    if handler.response_streaming:
        return grpc.unary_stream_rpc_method_handler, handler.unary_stream
    return grpc.unary_unary_rpc_method_handler, handler.unary_unary


async def _run(running: Any, context: Context) -> Any:  # noqa: ANN401 - any message
    """Run a behaviour, in either of the forms that a streaming one may have."""
    if inspect.isasyncgen(running):
        # Closed at once where the call is cancelled, as the server itself would do it.
        async with aclosing(cast("AsyncGenerator[Any]", running)) as messages:
            async for message in messages:
                await context.write(message)
        return None
    return await running


def _carrier(context: Context) -> dict[str, str]:
    return {
        key: value
        for key, value in context.invocation_metadata() or ()
        if key in {"traceparent", "tracestate"} and isinstance(value, str)
    }


def _code_of(context: Context) -> str:
    code: Any = context.code()
    if code is None:
        return "OK"
    found = code if isinstance(code, grpc.StatusCode) else _CODES.get(code, grpc.StatusCode.UNKNOWN)
    return found.name


def _log(method: str, code: str, seconds: float) -> None:
    level = logging.DEBUG if method.startswith(_PROBES) else logging.INFO
    if ACCESS_LOGGER.isEnabledFor(level):
        fields = {"method": method, "status": code, "duration_s": round(seconds, 6)}
        ACCESS_LOGGER.log(level, "%s %s", method, code, extra={"fields": fields})
