"""A change of the tables as the argument lists of Redis commands. Pure."""

from typing import Final

import msgspec

from belog.processors.indexes import index_names
from belog.processors.redis_rows import hash_of
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
    rows: list[list[str]] = []
    added: dict[str, list[str]] = {}
    removed: dict[str, list[str]] = {}
    for item in change.rows:
        before, after = item.before, item.after
        kind, row_id = after.kind, after.row_id
        fields = hash_of(before, after)
        if fields:
            rows.append([f"{base}{kind}:{row_id}", *fields])
        names = index_names(after)
        if before is None:
            added.setdefault(f"{base}ids:{kind}", []).extend(("0", row_id))
        elif before.index == after.index:
            continue
        else:
            for name in index_names(before):
                if name not in names:
                    removed.setdefault(f"{base}ix:{kind}:{name}", []).append(row_id)
        score = str(after.index)
        for name in names:
            added.setdefault(f"{base}ix:{kind}:{name}", []).extend((score, row_id))
    counts = [
        [f"{base}counts", f"{kind}:{state}", str(delta)]
        for (kind, state), delta in change.counts().items()
    ]
    return msgspec.msgpack.encode((rows, _in_parts(removed), _in_parts(added), counts))


def _in_parts(commands: dict[str, list[str]]) -> list[list[str]]:
    return [
        [key, *arguments[at : at + COMMAND_ARGUMENTS_MAX]]
        for key, arguments in commands.items()
        for at in range(0, len(arguments), COMMAND_ARGUMENTS_MAX)
    ]
