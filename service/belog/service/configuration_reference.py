"""The list of all keys in `docs/configuration.md`, made from the structs. Pure.

`python -m belog.service.configuration_reference` prints it.
"""

import inspect
import sys
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from belog.service.configuration import Configuration
from belog.service.configuration_merge import Key, bare_type, keys, variable_of

__all__ = ["HEADING", "every_key"]

HEADING: Final = "## Every key\n"
"""What stands below it in the page is this module's."""

_TYPES: Final[dict[Any, str]] = {
    str: "text",
    int: "integer",
    float: "number",
    bool: "true or false",
}


def every_key() -> str:
    """Return the part of the page from its heading on: a table for each section."""
    sections = get_type_hints(Configuration)
    parts = [HEADING]
    for section in Configuration.__struct_fields__:
        of_section = [key for key in keys() if key.path[0] == section]
        if not of_section:
            continue
        heading = ".".join(of_section[0].path[:-1])
        said = inspect.getdoc(sections[section])
        parts.append(f"### `[{heading}]`\n\n{said}\n")
        parts.append("| key | type | default | meaning |\n| --- | --- | --- | --- |")
        parts += [_row(key) for key in of_section]
        parts.append(f"\nAs a variable: `{variable_of(of_section[0].name)}` and so on.\n")
    return "\n".join(parts)


def _row(key: Key) -> str:
    meaning = (key.meta.description or "").replace("|", "\\|")
    return f"| `{key.path[-1]}` | {_type(key.hint)} | {_default(key)} | {meaning} |"


def _default(key: Key) -> str:
    value = key.default
    if value is msgspec.NODEFAULT:
        return "required"
    if value is None or value in ((), {}):
        return "–"
    text = msgspec.json.encode(value).decode().strip('"')
    return f"`{text}`"


def _type(hint: Any) -> str:  # noqa: ANN401 - a type of any form
    bare = bare_type(hint)
    if get_origin(bare) is Literal:
        return " or ".join(f"`{choice}`" for choice in get_args(bare))
    if get_origin(bare) is tuple:
        return "list of text" if get_args(bare)[0] is str else "list of tables"
    if bare in _TYPES:
        return _TYPES[bare] + _bounds(hint)
    return "table of text"


def _bounds(hint: Any) -> str:  # noqa: ANN401 - a type of any form
    """Return the bounds of a number, wherever in its type they stand."""
    for meta in _metas(hint):
        if meta.ge is not None and meta.le is not None:
            return f", {meta.ge:,}–{meta.le:,}"
        if meta.ge is not None:
            return f", from {meta.ge:,}"
    return ""


def _metas(hint: Any) -> list[Meta]:  # noqa: ANN401 - a type of any form
    own = [meta for meta in getattr(hint, "__metadata__", ()) if isinstance(meta, Meta)]
    inner = [meta for arg in get_args(hint) if get_args(arg) for meta in _metas(arg)]
    return own + inner


if __name__ == "__main__":
    sys.stdout.write(every_key())
