"""Commands on configuration and tokens, and the defaults that the other commands take from it."""

import os
import sys
from collections.abc import Iterator
from enum import StrEnum
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer

from belog.service import options
from belog.service.access import TOKEN_CHARS_MAX, Access, RoleName, TokenEntry, hash_token
from belog.service.binding import check_binding, check_upstreams
from belog.service.configuration import ClientSection, Configuration, UpstreamSection
from belog.service.configuration_files import read_configuration
from belog.service.configuration_merge import ENV_PREFIX, settings_of
from belog.service.rendering import to_text
from belog.service.terminal import note, put, put_json, put_table
from belog.service.tls import client_context, server_context
from belog.service.tokens import access_of, append_token, entry_text, new_token, read_token

__all__ = ["ConfigOption", "config_app", "configure", "named_file", "token_app"]

HELP_FLAGS: Final = frozenset({"-h", "--help"})

# Its help is that of what runs without a command below it.
config_app = typer.Typer(invoke_without_command=True)
token_app = typer.Typer(no_args_is_help=True, help="Tokens: who may use a service.")

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="The configuration; without it $BELOG_CONFIG, belog.toml here, or "
        "~/.config/belog/config.toml.",
    ),
]


def configure(ctx: typer.Context, named: Path | None) -> None:
    """Read the configuration, and let all commands take their defaults from it.

    An option takes part by naming the variable of its key, such as `BELOG__LOG__URI`.

    Args:
        ctx: The root's.
        named: The file, None to look for one.

    Raises:
        InvalidConfiguration: As `read_configuration`.
    """
    if HELP_FLAGS.intersection(takewhile(lambda arg: arg != "--", sys.argv)):
        # Help has to be had also where the configuration is what one needs help with.
        return
    found = read_configuration({}, os.environ, named=None if named is None else str(named))
    ctx.obj = found
    ctx.default_map = _defaults(ctx.command, found)


def named_file(ctx: typer.Context) -> str | None:
    """Return the file that the command line names; None for none."""
    named = ctx.find_root().params.get("config")
    return None if named is None else str(named)


def _defaults(command: Any, found: Configuration) -> dict[str, Any]:  # noqa: ANN401 - typer has its own click or another's
    """Return the values of options that have a key which is set, by command and parameter."""
    given: dict[str, Any] = {}
    for param in command.params:
        key = _key_of(param.envvar)
        if key is not None and found.origin(key).source != "default":
            value: Any = found
            for part in key.split("."):
                value = getattr(value, part)
            given[param.name] = value
    for name, inner in getattr(command, "commands", {}).items():
        given[name] = _defaults(inner, found)
    return given


def _key_of(variable: object) -> str | None:
    if not isinstance(variable, str) or not variable.startswith(ENV_PREFIX):
        return None
    return variable.removeprefix(ENV_PREFIX).lower().replace("__", ".")


def _configuration(ctx: typer.Context) -> Configuration:
    found = ctx.find_root().obj
    return found if isinstance(found, Configuration) else Configuration()


# --- configuration


@config_app.callback()
def show_config(ctx: typer.Context, *, as_json: options.JsonOption = False) -> None:
    """Show the configuration: every key, its value without secrets, and where it comes from.

    A value comes from a flag, else from the environment, else from the one file that is found, else
    it is a default. The variable of server.port is BELOG__SERVER__PORT; lists are given as JSON or
    with commas between their items.

    Example: belog config --json

    Example: belog --config production.toml config
    """
    if ctx.invoked_subcommand is not None:
        return
    shown = settings_of(_configuration(ctx))
    if as_json:
        for setting in shown:
            put_json(
                {
                    "key": setting.key,
                    "value": setting.value,
                    "from": msgspec.to_builtins(setting.origin),
                }
            )
        return
    rows = [(s.key, "-" if s.value is None else _text(s.value), str(s.origin)) for s in shown]
    put_table(("key", "value", "from"), rows)


def _text(value: object) -> str:
    return value if isinstance(value, str) else to_text(value)


@config_app.command("check")
def config_check(ctx: typer.Context) -> None:
    """Check the configuration with the files it names, and the rule of binding; exit with 2 if off.

    Example: belog config check

    Example: belog --config production.toml config check
    """
    found = _configuration(ctx)
    for problem in _notes(found):
        note(problem)
    put("ok")


def _notes(found: Configuration) -> Iterator[str]:
    """Open what is named, as a service and a client would; yield what the operator is told."""
    server_context(found.tls)
    callers: list[ClientSection | UpstreamSection] = [
        found.client,
        *found.federation.upstreams.values(),
    ]
    for caller in callers:
        read_token(caller.token, caller.token_file)
        client_context(ca_file=caller.ca_file, cert_file=caller.cert_file, key_file=caller.key_file)
    check_upstreams(found.federation)
    told = check_binding(found.server, is_open=access_of(found.access).is_open)
    if told is not None:
        yield told


# --- tokens


class RoleChoice(StrEnum):
    """Roles, as a command line names them."""

    READ = "read"
    APPEND = "append"
    ADMIN = "admin"


@token_app.command("create")
def token_create(
    actor: Annotated[
        str, typer.Option("--actor", metavar="NAME", help="Whose it is: the actor of its events.")
    ],
    role: Annotated[RoleChoice, typer.Option("--role", help="What it is for.")],
    *,
    pattern: Annotated[
        list[str] | None,
        typer.Option(
            "--pattern", metavar="GLOB", help="Only for partitions like this: * ** ? […]."
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="FILE", help="Add the entry to this tokens file."),
    ] = None,
    as_json: options.JsonOption = False,
) -> None:
    """Make a token: it is shown this once, and kept as a hash only.

    The entry belongs into the file that access.tokens_file names; with --file it is added there,
    and only the token is printed. A service that runs takes it up within a second.

    Example: belog token create --actor sales-graph --role append --pattern 'sales/**'

    Example: belog token create --actor dashboard --role read --file tokens.toml > dashboard.token
    """
    token = new_token()
    name: RoleName = role.value
    entry = TokenEntry(
        actor=actor, role=name, hash=hash_token(token), patterns=tuple(pattern or ())
    )
    # As the service would check it.
    Access((entry,))
    if file is not None:
        append_token(file, entry)
    if as_json:
        put_json({"token": token, "entry": msgspec.to_builtins(entry)})
        return
    put(token)
    if file is None:
        put("\n" + entry_text(entry).rstrip())
    note("the token is shown this once; whoever has it is who it says")


@token_app.command("hash")
def token_hash(*, as_json: options.JsonOption = False) -> None:
    """Read a token from standard input, and print what is kept of it.

    Example: belog token hash < dashboard.token
    """
    token = sys.stdin.read(TOKEN_CHARS_MAX + 2).rstrip("\r\n")
    hashed = hash_token(token)
    if as_json:
        put_json({"hash": hashed})
    else:
        put(hashed)
