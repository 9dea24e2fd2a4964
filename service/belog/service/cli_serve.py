"""The command that serves a log over HTTP and gRPC."""

import os
from typing import Annotated

import typer

from belog.schemas.errors import InvalidUri
from belog.service.cli_config import named_file
from belog.service.configuration_files import read_configuration
from belog.service.instance import DEFAULT_LOG
from belog.service.terminal import note

__all__ = ["serve"]


def serve(
    ctx: typer.Context,
    log: Annotated[
        str | None,
        typer.Option(
            "--log",
            metavar="URI",
            help=f"The log; made where it is not there. {DEFAULT_LOG} if nothing is configured.",
        ),
    ] = None,
    tables: Annotated[
        str | None,
        typer.Option(
            "--tables",
            metavar="URI",
            help="The tables that a worker keeps; otherwise they are kept in this process.",
        ),
    ] = None,
    *,
    host: Annotated[str | None, typer.Option("--host", help="The address to bind.")] = None,
    port: Annotated[
        int | None, typer.Option("--port", min=0, max=65_535, help="HTTP; 0 for a free one.")
    ] = None,
    grpc_port: Annotated[
        int | None,
        typer.Option("--grpc-port", min=0, max=65_535, help="gRPC, too; 0 for a free one."),
    ] = None,
    snapshots: Annotated[
        str | None,
        typer.Option("--snapshots", metavar="DIR", help="Start from snapshots there, and take."),
    ] = None,
    instance: Annotated[
        str | None,
        typer.Option("--instance", help="Name of this instance, for a log that is made."),
    ] = None,
    allow_open: Annotated[
        bool,
        typer.Option(
            "--allow-open", help="Without tokens, let in everyone who reaches the address."
        ),
    ] = False,
) -> None:
    """Serve a log over HTTP (and gRPC) until stopped; no other server is needed.

    Pages for people are at /docs. SIGTERM or Ctrl-C ends it: who waits is answered, appends that
    were taken are finished.

    Example: belog serve --log sqlite:///demo.db --port 8000
    """
    configuration = read_configuration(
        {
            "log.uri": log,
            "log.instance": instance,
            "tables.uri": tables,
            "snapshots.uri": snapshots,
            "server.host": host,
            "server.port": port,
            "server.grpc_port": grpc_port,
            "server.allow_open": allow_open or None,
        },
        os.environ,
        named=named_file(ctx),
    )
    try:
        from belog.service.serving import serve_configured  # noqa: PLC0415 - an extra
    except ImportError as error:
        msg = f"serving needs a package that is not installed ({error.name})"
        raise InvalidUri(msg, hint="pip install 'belog[service]'") from error
    serve_configured(configuration, say=note)
