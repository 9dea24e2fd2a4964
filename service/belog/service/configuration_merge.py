"""Configuration from several places: flags before the environment, and that before files. Pure.

Values are merged key by key: a list is replaced as a whole, a table such as `kafka.settings` or
`federation.upstreams` entry by entry. Everything is checked against the structs of
`belog.service.configuration`, and an error names the place of what is wrong, never its value where
that may be secret.
"""

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from types import UnionType
from typing import (
    Annotated,
    Any,
    Final,
    NamedTuple,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from msgspec import Meta, Struct

from belog.schemas.errors import InvalidConfiguration
from belog.service.configuration import (
    ClientSection,
    Configuration,
    Origin,
    RedisSection,
    TlsSection,
    UpstreamSection,
    Visibility,
)
from belog.storage.factory import redacted
from belog.storage.kafka_target import CLIENT_SETTINGS

__all__ = [
    "ENV_PREFIX",
    "ConfigurationFile",
    "Key",
    "Setting",
    "bare_type",
    "keys",
    "load_configuration",
    "settings_of",
    "variable_of",
]

ENV_PREFIX: Final = "BELOG__"
"""What names of variables start with; their parts are joined by two underscores."""

ANY: Final = "NAME"
"""Stands for the name of an entry in the key of a table."""

_KAFKA: Final = ("kafka", "settings")
"""The table whose keys have dots in them."""

S = TypeVar("S", bound=Struct)
Path = tuple[str, ...]


class ConfigurationFile(Struct, frozen=True):
    """A TOML file, as it was read."""

    name: str
    text: str


class Key(NamedTuple):
    """One thing that can be configured."""

    path: Path
    """With `NAME` where an entry of a table is named."""
    hint: Any
    """Its type, annotated."""
    meta: Meta
    default: object
    """`msgspec.NODEFAULT` where it has to be given."""

    @property
    def name(self) -> str:
        """As files have it, joined by dots."""
        return ".".join(self.path)

    @property
    def shown(self) -> Visibility:
        """How much of its value is shown."""
        return cast("Visibility", (self.meta.extra or {}).get("shown", "plain"))


class Setting(NamedTuple):
    """A key's value, fit to be shown."""

    key: str
    value: object
    origin: Origin


class _Value(NamedTuple):
    given: object
    origin: Origin
    is_text: bool


def keys() -> Sequence[Key]:
    """Return all that can be configured, section by section."""
    return tuple(_keys(Configuration, ()))


def _keys(struct: type[Struct], path: Path) -> Iterator[Key]:
    hints = get_type_hints(struct, include_extras=True)
    for field in msgspec.structs.fields(struct):
        if struct is Configuration and field.name == "origins":
            continue
        hint, here = hints[field.name], (*path, field.name)
        nested = _struct_of(hint)
        if nested is not None:
            yield from _keys(nested, here)
            continue
        entry = _struct_of(_entry_of(hint))
        if entry is not None:
            yield from _keys(entry, (*here, ANY))
            continue
        default = field.default
        if field.default_factory is not msgspec.NODEFAULT:
            default = field.default_factory()
        yield Key(here, hint, _meta_of(hint), default)


def bare_type(hint: Any) -> Any:  # noqa: ANN401 - a type of any form
    """Return a type without annotations and without None."""
    if get_origin(hint) is Annotated:
        return bare_type(get_args(hint)[0])
    if get_origin(hint) in {Union, UnionType}:
        (rest,) = (arg for arg in get_args(hint) if arg is not type(None))
        return bare_type(rest)
    return hint


def _meta_of(hint: Any) -> Meta:  # noqa: ANN401 - a type of any form
    return next((m for m in getattr(hint, "__metadata__", ()) if isinstance(m, Meta)), Meta())


def _struct_of(hint: Any) -> type[Struct] | None:  # noqa: ANN401 - a type of any form
    bare = bare_type(hint)
    return bare if isinstance(bare, type) and issubclass(bare, Struct) else None


def _entry_of(hint: Any) -> Any:  # noqa: ANN401 - a type of any form
    """Return the type of a table's entries, None if it is no table."""
    bare = bare_type(hint)
    return get_args(bare)[1] if get_origin(bare) is Mapping else None


def variable_of(key: str) -> str:
    """Return the environment variable of a key.

    >>> variable_of("server.grpc_port")
    'BELOG__SERVER__GRPC_PORT'
    """
    return ENV_PREFIX + key.replace(".", "__").upper()


def load_configuration(
    flags: Mapping[str, object],
    environ: Mapping[str, str],
    files: Sequence[ConfigurationFile] = (),
) -> Configuration:
    """Return the configuration that flags, environment and files make, in this order of weight.

    Args:
        flags: By key, such as `server.port`; those that are None were not given. Text is read as in
            a variable.
        environ: Variables; those that do not start with `BELOG__`, and those that are empty, are
            passed by.
        files: TOML files; of several a later one weighs more.

    Raises:
        InvalidConfiguration: An unknown key, a value of the wrong type or out of bounds, keys that
            exclude or need each other, or a file that is no TOML.
    """
    values: dict[Path, _Value] = {}
    for file in files:
        origin = Origin("file", file.name)
        for path, given in _flat(Configuration, _parsed(file), (), origin):
            values[path] = _Value(given, origin, is_text=False)
    for name in sorted(environ):
        if name.startswith(ENV_PREFIX) and environ[name]:
            origin = Origin("environment", name)
            values |= _from_text(_path_of(name), environ[name], origin)
    for key, value in flags.items():
        if value is not None:
            origin, path = Origin("flag", key), tuple(key.split("."))
            if isinstance(value, str):
                values |= _from_text(path, value, origin)
            else:
                _check_known(path, origin)
                values[path] = _Value(value, origin, is_text=False)
    found = _built(Configuration, (), values)
    _check_together(found)
    origins = {".".join(path): value.origin for path, value in values.items()}
    return msgspec.structs.replace(found, origins=origins)


def _parsed(file: ConfigurationFile) -> dict[str, Any]:
    try:
        return tomllib.loads(file.text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidConfiguration(f"{file.name} is no TOML: {error}") from error


def _flat(
    hint: Any,  # noqa: ANN401 - a type of any form
    table: Mapping[str, object],
    path: Path,
    origin: Origin,
) -> Iterator[tuple[Path, object]]:
    """Yield the values of a table by their paths."""
    for name, value in table.items():
        here = (*path, name)
        inner = _field(hint, here, origin)
        if path == _KAFKA:
            yield from _settings_of_kafka(here, value)
        elif _struct_of(inner) is None and _entry_of(inner) is None:
            yield here, value
        elif isinstance(value, Mapping):
            yield from _flat(inner, cast("Mapping[str, object]", value), here, origin)
        else:
            raise InvalidConfiguration(
                f"{'.'.join(here)} is a table ({origin})", hint=f"write [{'.'.join(here)}]"
            )


def _settings_of_kafka(path: Path, value: object) -> Iterator[tuple[Path, object]]:
    """Yield settings as text, whether their dots were quoted or made tables of TOML."""
    if isinstance(value, Mapping):
        for name, inner in cast("Mapping[str, object]", value).items():
            yield from _settings_of_kafka((*_KAFKA, f"{path[-1]}.{name}"), inner)
    elif isinstance(value, bool):
        yield path, str(value).lower()
    else:
        yield path, str(value) if isinstance(value, int) else value


def _field(hint: Any, path: Path, origin: Origin, rest: Path = ()) -> Any:  # noqa: ANN401 - a type of any form
    """Return the type of what the last part of a path names; an error shows the rest, too."""
    entry = _entry_of(hint)
    if entry is not None:
        return entry
    struct = _struct_of(hint)
    hints = {} if struct is None else get_type_hints(struct, include_extras=True)
    if struct is Configuration:
        del hints["origins"]
    if path[-1] in hints:
        return hints[path[-1]]
    raise _unknown(path, tuple(hints), origin, rest)


def _unknown(path: Path, known: Sequence[str], origin: Origin, rest: Path) -> InvalidConfiguration:
    key = ".".join(path)
    near = get_close_matches(path[-1], known, n=1)
    guess = ".".join((*path[:-1], *near, *rest)) if near else ""
    if not near:
        # The right key in the wrong section is as likely as a misspelt one.
        guess = next((k.name for k in keys() if k.path[-1] == path[-1]), "")
    if origin.source == "environment" and guess:
        guess = variable_of(guess)
    what = "section" if len(path) == 1 else "key"
    listed = f"known: {', '.join(known)}" if known else "belog config shows all keys"
    hint = f"did you mean {guess}?" if guess else listed
    return InvalidConfiguration(f"unknown {what} {key} ({origin})", hint=hint)


def _path_of(variable: str) -> Path:
    parts = variable.removeprefix(ENV_PREFIX).lower().split("__")
    if tuple(parts[:2]) == _KAFKA:
        # Shells know no names with dots; settings of librdkafka have no underscores.
        parts[2:] = [".".join(parts[2:]).replace("_", ".")] if parts[2:] else []
    return tuple(parts)


def _check_known(path: Path, origin: Origin) -> Any:  # noqa: ANN401 - a type of any form
    """Return the type of a path.

    Raises:
        InvalidConfiguration: There is no such key.
    """
    hint: Any = Configuration
    for end in range(1, len(path) + 1):
        hint = _field(hint, path[:end], origin, path[end:])
    return hint


def _from_text(path: Path, text: str, origin: Origin) -> dict[Path, _Value]:
    """Return the values that the text of a variable stands for: several where it is a table."""
    hint = _check_known(path, origin)
    key = ".".join(path)
    if _entry_of(hint) is not None:
        given = _json(text, key, origin)
        if not isinstance(given, dict):
            raise InvalidConfiguration(f"{key} is no JSON object ({origin})")
        table = cast("dict[str, object]", given)
        return {p: _Value(v, origin, is_text=False) for p, v in _flat(hint, table, path, origin)}
    struct = _struct_of(hint)
    if struct is not None:
        name = variable_of(key) if origin.source == "environment" else key
        raise InvalidConfiguration(
            f"{name} is a section, not a key",
            hint="its keys: " + ", ".join(struct.__struct_fields__),
        )
    if get_origin(bare_type(hint)) is tuple:
        if text.lstrip().startswith("["):
            return {path: _Value(_json(text, key, origin), origin, is_text=False)}
        items = [item.strip() for item in text.split(",")]
        return {path: _Value([item for item in items if item], origin, is_text=False)}
    return {path: _Value(text, origin, is_text=True)}


def _json(text: str, key: str, origin: Origin) -> object:
    try:
        return cast("object", json.loads(text))
    except ValueError as error:
        # Neither the cause nor the text: both may hold a secret.
        raise InvalidConfiguration(f"{key} is no JSON ({origin})") from error


def _built(struct: type[S], path: Path, values: Mapping[Path, _Value]) -> S:
    """Return a section, or all of them, made of the values below a path."""
    fields: dict[str, object] = {}
    for name, hint in get_type_hints(struct, include_extras=True).items():
        here = (*path, name)
        nested, entry = _struct_of(hint), _entry_of(hint)
        if nested is not None:
            fields[name] = _built(nested, here, values)
        elif here in values:
            fields[name] = _converted(here, values[here], hint)
        elif entry is not None:
            below = dict.fromkeys(p[len(here)] for p in values if p[: len(here)] == here)
            fields[name] = {n: _entry(entry, (*here, n), values) for n in below}
    try:
        return struct(**fields)
    except TypeError:
        missing = next(
            f.name for f in msgspec.structs.fields(struct) if f.required and f.name not in fields
        )
        origin = next(v.origin for p, v in values.items() if p[: len(path)] == path)
        key = ".".join((*path, missing))
        raise InvalidConfiguration(f"{key} is missing ({origin})") from None


def _entry(hint: Any, path: Path, values: Mapping[Path, _Value]) -> object:  # noqa: ANN401 - a type of any form
    struct = _struct_of(hint)
    return _converted(path, values[path], hint) if struct is None else _built(struct, path, values)


def _converted(path: Path, value: _Value, hint: Any) -> object:  # noqa: ANN401 - a type of any form
    given = value.given
    if value.is_text and isinstance(given, str) and bare_type(hint) is bool:
        given = given.lower()
    try:
        return cast("object", msgspec.convert(given, hint, strict=not value.is_text))
    except msgspec.ValidationError as error:
        key = ".".join(path)
        raise InvalidConfiguration(f"{key}: {error} ({value.origin})") from None


def _check_together(found: Configuration) -> None:
    """Refuse keys that exclude or need each other."""
    upstreams = {f"federation.upstreams.{n}": u for n, u in found.federation.upstreams.items()}
    callers: dict[str, ClientSection | UpstreamSection] = {"client": found.client, **upstreams}
    for section, caller in callers.items():
        if caller.token is not None and caller.token_file is not None:
            msg = f"{section} has both a token and a token_file"
            raise InvalidConfiguration(msg, hint="leave one out")
    pairs: dict[str, ClientSection | UpstreamSection | TlsSection | RedisSection] = {
        "tls": found.tls,
        "redis": found.redis,
        **callers,
    }
    for section, pair in pairs.items():
        if (pair.cert_file is None) != (pair.key_file is None):
            msg = f"{section}.cert_file and {section}.key_file need each other"
            raise InvalidConfiguration(msg)
    if found.tls.client_ca_file is not None and found.tls.cert_file is None:
        msg = "tls.client_ca_file needs tls.cert_file and tls.key_file"
        raise InvalidConfiguration(msg)
    for name in found.kafka.settings:
        if name not in CLIENT_SETTINGS:
            near = get_close_matches(name, CLIENT_SETTINGS, n=1)
            listed = f"known: {', '.join(sorted(CLIENT_SETTINGS))}"
            hint = f"did you mean {near[0]}?" if near else listed
            raise InvalidConfiguration(f"unknown key kafka.settings.{name}", hint=hint)


def settings_of(configuration: Configuration) -> Sequence[Setting]:
    """Return all values with their origins, secrets hidden, in the order of the structs."""
    return tuple(_settings(configuration))


def _settings(configuration: Configuration) -> Iterator[Setting]:
    for key in keys():
        for path, value in _found(configuration, key.path, ()):
            name = ".".join(path)
            if key.shown == "settings":
                table = cast("Mapping[str, str]", value)
                for entry, text in table.items():
                    origin = configuration.origin(f"{name}.{entry}")
                    yield Setting(f"{name}.{entry}", _hidden_setting(entry, text), origin)
            else:
                yield Setting(name, _hidden(key.shown, value), configuration.origin(name))


def _found(value: object, path: Path, done: Path) -> Iterator[tuple[Path, object]]:
    """Yield what stands at a path, once for each entry where it names one."""
    if not path:
        yield done, value
    elif path[0] == ANY:
        for name, entry in cast("Mapping[str, object]", value).items():
            yield from _found(entry, path[1:], (*done, name))
    else:
        yield from _found(getattr(value, path[0]), path[1:], (*done, path[0]))


def _hidden(shown: Visibility, value: object) -> object:
    if value is None:
        return None
    if shown == "secret":
        return "***"
    if shown == "uri":
        text = str(value)
        return redacted(text) + ("?***" if "?" in text else "")
    plain = cast("object", msgspec.to_builtins(value))
    if shown == "tokens":
        entries = cast("Sequence[dict[str, object]]", plain)
        return [{**entry, "hash": "***"} for entry in entries]
    return plain


def _hidden_setting(name: str, value: str) -> str:
    words = ("password", "secret", "jaas", "pem", "token")
    return "***" if any(word in name for word in words) else value
