"""A gRPC server in a process of its own: `python -m benchmarks.grpc_server [LOG_URI]`.

With a log the service itself; without one a bare rpc of the same messages that does nothing. Prints
its port, and ends when its input does.
"""

import asyncio
import sys
from typing import Any, cast

import grpc
import uvicorn

from belog.service.access import Access
from belog.service.grpc_api import GrpcSettings, start_grpc
from belog.service.instance import Instance, InstanceSettings
from belog.service.server import settled_collector
from belog.v1 import event_log_pb2 as pb
from belog.v1 import event_log_pb2_grpc, events_pb2


class Bare(event_log_pb2_grpc.EventLogServiceServicer):
    """Parses and answers, and does nothing in between."""

    async def Append(self, request: pb.AppendRequest, _context: object) -> pb.AppendResponse:  # noqa: N802 - the .proto file's name
        """Answer as if the event were somewhere."""
        return pb.AppendResponse(
            receipt=events_pb2.Receipt(index=1, created_at=1, event_id=request.event.event_id)
        )


async def ended() -> None:
    """Wait until standard input is closed."""
    await asyncio.to_thread(sys.stdin.read)


async def bare() -> None:
    """Serve the bare rpc."""
    server = grpc.aio.server()
    cast("Any", event_log_pb2_grpc).add_EventLogServiceServicer_to_server(Bare(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    with settled_collector():
        print(port, flush=True)
        await ended()
    await server.stop(1)


async def service(log_uri: str) -> None:
    """Serve a log."""
    async with Instance(InstanceSettings(log_uri=log_uri)) as instance:
        server = await start_grpc(instance, Access.open(), GrpcSettings())
        with settled_collector():
            print(server.port, flush=True)
            await ended()
        instance.stop()
        await server.stop(1)


if __name__ == "__main__":
    # The loop that `belog serve` runs on.
    with asyncio.Runner(loop_factory=uvicorn.Config("", loop="auto").get_loop_factory()) as runner:
        runner.run(service(sys.argv[1]) if len(sys.argv) > 1 else bare())
