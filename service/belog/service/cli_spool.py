"""Commands about a spool: what waits in a folder, sending it, what the log refused of it."""

from typing import Annotated, Final

import msgspec
import typer

from belog.client import Client, ClientOptions, Spool, flush
from belog.schemas.wire import event_to_wire, message_to_json
from belog.service import options
from belog.service.rendering import rfc3339, struct_json
from belog.service.terminal import put, put_fields, put_json, put_table
from belog.service.tokens import read_token

__all__ = ["spool_app"]

LIST_EVENTS: Final = 100
"""Events that `list` shows when nothing is said: some pages of a terminal."""

LIST_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes that `list` reads at most: as much as a whole spool may hold."""

FLUSH_RETRY_S: Final = 5.0
"""How long `flush` tries to reach a service that is away, seconds: a person waits for it, or a
timer starts it again."""

spool_app = typer.Typer(no_args_is_help=True, help="Events that wait for a service on disk.")

FolderOption = Annotated[
    str,
    typer.Option(
        "--spool",
        envvar="BELOG__CLIENT__SPOOL",
        metavar="DIR",
        show_default=False,
        help="The folder.",
    ),
]


@spool_app.command("list")
def spool_list(
    folder: FolderOption,
    *,
    limit: Annotated[int, typer.Option("--limit", min=0, help="Most events to show.")] = (
        LIST_EVENTS
    ),
    as_json: options.JsonOption = False,
) -> None:
    """Show how much waits, and the events that are next. Sends nothing.

    Example: belog spool list --spool ./spool
    """
    with Spool(folder, make=False) as spool:
        status = spool.status()
        entries = spool.entries(limit, LIST_BYTES_MAX) if limit else []
    if as_json:
        for entry in entries:
            event = message_to_json(event_to_wire(entry.event, with_body=True))
            put_json({"number": entry.number, "put_at": rfc3339(entry.put_at), "event": event})
        return
    put_fields(
        {
            **struct_json(status),
            "oldest_at": None if status.oldest_at is None else rfc3339(status.oldest_at),
        }
    )
    if entries:
        put_table(
            ("number", "kept", "event type", "subject"),
            [
                (str(e.number), rfc3339(e.put_at), e.event.event_type, e.event.subject_id)
                for e in entries
            ],
        )


@spool_app.command("flush")
def spool_flush(
    folder: FolderOption,
    url: Annotated[
        str,
        typer.Option(
            "--url",
            envvar="BELOG__CLIENT__URL",
            metavar="URL",
            show_default=False,
            help="The service.",
        ),
    ],
    *,
    token_file: Annotated[
        str | None,
        typer.Option(
            "--token-file",
            envvar="BELOG__CLIENT__TOKEN_FILE",
            metavar="FILE",
            help="A file that holds the token to show.",
        ),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option("--token", envvar="BELOG__CLIENT__TOKEN", show_default=False, hidden=True),
    ] = None,
    ca_file: Annotated[
        str | None,
        typer.Option(
            "--ca-file",
            envvar="BELOG__CLIENT__CA_FILE",
            metavar="FILE",
            help="CAs to trust instead of the system's, PEM.",
        ),
    ] = None,
    as_json: options.JsonOption = False,
) -> None:
    """Send everything that waits, in order, each event once.

    Ends with 5 when the service cannot be reached, and with 3 when it refused some events: these
    are in `belog spool conflicts`, and the rest was sent.

    Example: belog spool flush --spool ./spool --url http://localhost:8000
    """
    shown = ClientOptions(
        token=read_token(token, None if token is not None else token_file),
        ca_file=ca_file,
        retry_s=FLUSH_RETRY_S,
    )
    with Spool(folder, make=False) as spool, Client(url, **shown) as client:
        done = flush(spool, client)
    if as_json:
        put_json(
            {"sent": done.sent, "refused": done.refused, "left": done.left, "ours": done.is_ours}
        )
    else:
        put(f"sent {done.sent}, refused {done.refused}, left {done.left}")
        if not done.is_ours:
            put("another process is sending them")
    if done.error is not None:
        raise done.error
    if done.refused:
        raise typer.Exit(3)


@spool_app.command("conflicts")
def spool_conflicts(folder: FolderOption, *, as_json: options.JsonOption = False) -> None:
    """Show the events that the log refused when they were sent, and why.

    Example: belog spool conflicts --spool ./spool --json
    """
    with Spool(folder, make=False) as spool:
        refusals = spool.conflicts()
    if as_json:
        for refusal in refusals:
            put_json(msgspec.to_builtins(refusal))
        return
    put_table(
        ("number", "refused", "code", "event type", "subject", "why"),
        [
            (
                str(refusal.number),
                rfc3339(refusal.at),
                refusal.code,
                str(refusal.event.get("event_type", "")),
                refusal.subject,
                refusal.message,
            )
            for refusal in refusals
        ],
    )
