"""An HTTP server in a process of its own: `python -m benchmarks.http_server [LOG_URI]`.

With a log the service itself; without one a bare endpoint of the same framework that does nothing.
Both on the same parser and loop. Prints its port, and ends when its input does.
"""

import asyncio
import sys
import threading

import uvicorn
import uvloop
from fastapi import FastAPI, Response

from belog.service.access import Access
from belog.service.http_api import make_app
from belog.service.instance import Instance, InstanceSettings
from belog.service.server import HttpListener, listen, serve, settled_collector


def bare_app() -> FastAPI:
    """Return an application that takes a body and answers as much as a receipt is."""
    app = FastAPI(openapi_url=None)
    answer = b" " * 112

    @app.post("/events")
    async def append() -> Response:
        return Response(answer, media_type="application/json")

    return app


def when_input_ends(stop: asyncio.Event) -> None:
    """Set an event of the running loop when standard input is closed."""
    loop = asyncio.get_running_loop()

    def wait() -> None:
        sys.stdin.read()
        loop.call_soon_threadsafe(stop.set)

    threading.Thread(target=wait, daemon=True).start()


async def service(log_uri: str) -> None:
    """Serve a log."""
    stop = asyncio.Event()
    when_input_ends(stop)
    listening = listen(HttpListener(port=0))
    async with Instance(InstanceSettings(log_uri=log_uri)) as instance:
        app = make_app(instance, Access.open())
        port = listening.getsockname()[1]
        with settled_collector():
            await serve(
                instance, app, listening, stop=stop, on_ready=lambda: print(port, flush=True)
            )


async def bare() -> None:
    """Serve the bare endpoint."""
    stop = asyncio.Event()
    when_input_ends(stop)
    listening = listen(HttpListener(port=0))
    config = uvicorn.Config(
        bare_app(), http="httptools", ws="none", lifespan="off", log_config=None, access_log=False
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    with settled_collector():
        print(listening.getsockname()[1], flush=True)
        await stop.wait()
    server.should_exit = True
    await serving


if __name__ == "__main__":
    uvloop.run(service(sys.argv[1]) if sys.argv[1:] else bare())
