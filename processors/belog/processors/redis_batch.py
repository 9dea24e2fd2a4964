"""A change of the tables as the script `WRITE` takes it. Pure."""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from belog.processors.indexes import index_names
from belog.processors.redis_rows import fields_of
from belog.processors.rows import ROW_TYPES, Row, RowKind
from belog.processors.table_fold import Change

__all__ = ["pack_change"]

COMMAND_ARGUMENTS_MAX: Final = 4_000
"""Arguments of one command: Lua's stack takes about 8,000."""


def pack_change(change: Change, base: str) -> bytes:
    """Return a change as the script `WRITE` takes it.

    Args:
        change: What to write.
        base: What the keys of the generation start with.
    """
    rows: list[tuple[str, bool, Row | dict[str, Any]]] = []
    added: _ByIndex = {kind: {} for kind in ROW_TYPES}
    removed: _ByIndex = {kind: {} for kind in ROW_TYPES}
    new_ids: dict[RowKind, list[str]] = {kind: [] for kind in ROW_TYPES}
    for item in change.rows:
        before, after = item.before, item.after
        kind, row_id = after.kind, after.row_id
        rows.append((f"{base}{kind}:{row_id}", before is not None, fields_of(after)))
        if before is None:
            names = index_names(after)
            new_ids[kind] += ("0", row_id)
        elif before.index == after.index:
            continue
        else:
            names = index_names(after)
            for name in index_names(before):
                if name not in names:
                    removed[kind].setdefault(name, []).append(row_id)
        entry = str(after.index), row_id
        into = added[kind]
        for name in names:
            if name in into:
                into[name] += entry
            else:
                into[name] = [*entry]
    adding = [
        *_commands(base, added),
        *_in_parts([(f"{base}ids:{k}", v) for k, v in new_ids.items()]),
    ]
    counts = [
        [f"{base}counts", f"{kind}:{state}", str(delta)]
        for (kind, state), delta in change.counts().items()
    ]
    return msgspec.msgpack.encode((rows, _commands(base, removed), adding, counts))


_ByIndex = dict[RowKind, dict[str, list[str]]]
"""Arguments by kind and name of the index."""


def _commands(base: str, by_index: _ByIndex) -> list[list[str]]:
    return _in_parts(
        (f"{base}ix:{kind}:{name}", arguments)
        for kind, by_name in by_index.items()
        for name, arguments in by_name.items()
    )


def _in_parts(commands: Iterable[tuple[str, list[str]]]) -> list[list[str]]:
    return [
        [key, *arguments[at : at + COMMAND_ARGUMENTS_MAX]]
        for key, arguments in commands
        for at in range(0, len(arguments), COMMAND_ARGUMENTS_MAX)
    ]
