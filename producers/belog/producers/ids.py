"""Ids for events and for attempts to append them.

No two are equal, whichever threads draw them; a forked process draws anew instead of repeating what
its parent has in stock.
"""

import os
import threading
from itertools import count
from typing import Final
from weakref import WeakSet

__all__ = ["AttemptKeys", "random_uuid"]

_VERSION_8: Final = 0x80
_VARIANT: Final = 0b10 << 62
_COUNTER_MASK: Final = (1 << 62) - 1


class AttemptKeys:
    """Record keys: UUIDs of version 8, sixty random bits for the writer and a counter.

    A key names one attempt of one writer. Drawing randomness for each would cost more than the
    verdict. Thread-safe.

    Source: RFC 9562 §5.8.
    """

    def __init__(self) -> None:
        """Draw the writer's part."""
        self.draw_anew()
        _writers.add(self)

    def draw_anew(self) -> None:
        """Become another writer, whose keys no other has."""
        prefix = bytearray(os.urandom(8))
        prefix[6] = _VERSION_8 | prefix[6] & 0x0F
        self._prefix = bytes(prefix)
        self._numbers = count(int.from_bytes(os.urandom(8), "big"))

    def next(self) -> bytes:
        """Return a key that this writer has not used, 16 bytes."""
        number = next(self._numbers) & _COUNTER_MASK
        return self._prefix + (_VARIANT | number).to_bytes(8, "big")


_writers: WeakSet[AttemptKeys] = WeakSet()

_BLOCK_IDS: Final = 256
"""Ids drawn from the system at once: the call costs as much for 4 kB as for 16 bytes."""
_lock = threading.Lock()
_ids: list[bytes] = []


def random_uuid() -> bytes:
    """Return a random UUID (RFC 9562, version 4), 16 bytes. Thread-safe."""
    with _lock:
        if not _ids:
            block = os.urandom(16 * _BLOCK_IDS)
            _ids.extend(block[at : at + 16] for at in range(0, len(block), 16))
        raw = bytearray(_ids.pop())
    raw[6] = 0x40 | raw[6] & 0x0F
    raw[8] = 0x80 | raw[8] & 0x3F
    return bytes(raw)


def _draw_anew() -> None:
    """Forget, in a forked process, what its parent would use too."""
    global _lock  # noqa: PLW0603 - the parent's may have been held by a thread that is not here
    _lock = threading.Lock()
    _ids.clear()
    for writer in list(_writers):
        writer.draw_anew()


os.register_at_fork(after_in_child=_draw_anew)
