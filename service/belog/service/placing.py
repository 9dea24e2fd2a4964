"""The options by which a command is told which log it is about, and the source that they name.

`@placed` puts `--log`, `--tables`, `--snapshots`, `--url` and `--token` on a command, whose first
parameter is the `Source`. On the command line `--log` means the log itself, `--url` a service;
where neither is there, what is configured, and the log where both are.
"""

import inspect
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import wraps
from inspect import Parameter, Signature
from itertools import takewhile
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from msgspec import Struct
from typer.core import TyperCommand

from belog.schemas.errors import InvalidInput, InvalidUri
from belog.service import options
from belog.service.configuration import Configuration
from belog.service.log_source import LogSource
from belog.service.sources import Source
from belog.service.tokens import read_token

if TYPE_CHECKING:
    from belog.client.settings import ClientOptions

__all__ = ["LogCommand", "placed"]

LogOption = Annotated[
    str | None,
    typer.Option(
        "--log",
        envvar="BELOG__LOG__URI",
        metavar="URI",
        callback=options.connected,
        # What is configured is a default too, and may hold a password.
        show_default=False,
        help="The log itself: sqlite:///path, kafka://host:port/topic, …",
    ),
]
UrlOption = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar="BELOG__CLIENT__URL",
        metavar="URL",
        show_default=False,
        help="Or a service of the log: http://host:8000",
    ),
]
TokenOption = Annotated[
    str | None,
    typer.Option(
        "--token",
        envvar="BELOG__CLIENT__TOKEN",
        metavar="TOKEN",
        show_default=False,
        help="Shown to the service; better kept in a file, see client.token_file.",
    ),
]


class Place(Struct, frozen=True):
    """What a command line says of where a log is."""

    log: str | None
    url: str | None
    token: str | None
    tables: str | None
    snapshots: str | None


@contextmanager
def _open_source(ctx: typer.Context, place: Place) -> Generator[Source]:
    """Open what a command asks.

    Raises:
        InvalidInput: Log and service are both named on the command line, or neither is anywhere.
    """
    names = {name for name in ("log", "url") if _is_typed(ctx, name)}
    if len(names) > 1:
        msg = "--log and --url were both given"
        raise InvalidInput(msg, hint="--log is the log itself, --url a service of it")
    if place.log is not None and "url" not in names:
        if place.log.partition(":")[0] in {"http", "https"}:
            msg = "a service is no log"
            raise InvalidUri(msg, hint="name it with --url")
        yield LogSource(place.log, place.tables, place.snapshots)
    elif place.url is not None:
        # Importing a client takes longer than most commands on a log.
        from belog.service.service_source import ServiceSource  # noqa: PLC0415

        with ServiceSource(place.url, _client_options(ctx, place.token)) as source:
            yield source
    else:
        msg = "no log is named"
        raise InvalidInput(msg, hint="--log URI, or --url URL of a service; see belog config")


def _is_typed(ctx: typer.Context, name: str) -> bool:
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _client_options(ctx: typer.Context, token: str | None) -> "ClientOptions":
    found = ctx.find_root().obj
    section = (found if isinstance(found, Configuration) else Configuration()).client
    if not _is_typed(ctx, "token"):
        token = read_token(token, section.token_file)
    return {
        "token": token,
        "ca_file": section.ca_file,
        "cert_file": section.cert_file,
        "key_file": section.key_file,
    }


class LogCommand(TyperCommand):
    """A command that needs the log in its hands, and says so where it is given a service."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - typer has its own click or another's
        """Refuse `--url`.

        Raises:
            InvalidInput: It is there.
        """
        for arg in takewhile(lambda arg: arg != "--", args):
            if arg == "--url" or arg.startswith("--url="):
                msg = f"{ctx.command_path} works on the log itself, not through a service"
                raise InvalidInput(msg, hint="name the log with --log")
        return super().parse_args(ctx, args)


_OPTIONS: Final[dict[str, tuple[Any, object]]] = {
    "log": (LogOption, None),
    "url": (UrlOption, None),
    "token": (TokenOption, None),
    "tables": (options.TablesOption, "memory:"),
    "snapshots": (options.SnapshotsOption, None),
}


def placed(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command that opens its source itself.

    Args:
        command: Takes a `Source` first; the rest are its own arguments and options.
    """
    own = inspect.signature(command, eval_str=True)
    parameters = [
        Parameter("ctx", Parameter.KEYWORD_ONLY, annotation=typer.Context),
        *(p.replace(kind=Parameter.KEYWORD_ONLY) for p in list(own.parameters.values())[1:]),
        *(
            Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
            for name, (annotation, default) in _OPTIONS.items()
        ),
    ]

    @wraps(command)
    def run(*, ctx: typer.Context, **given: Any) -> None:  # noqa: ANN401 - of the command's types
        place = Place(**{name: given.pop(name) for name in _OPTIONS})
        with _open_source(ctx, place) as source:
            command(source, **given)

    run.__annotations__ = {p.name: p.annotation for p in parameters}
    # Typer reads what a command takes from its signature.
    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return run
