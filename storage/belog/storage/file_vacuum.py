"""Removing records from closed segments of a file log.

A segment is written anew beside the old one and renamed over it, so a crash leaves one or the
other, and who reads the old one goes on reading it. The new one has the same length: where records
were, stands a filler (`belog.storage.file_codec`) whose bytes are a hole, which takes no room on
file systems that know holes. So no other file has to change with it, and a reader that knows
offsets of the old one finds at worst that they lead nowhere, and walks the segment once.
"""

import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct

from belog.storage.file_codec import HEAD_BYTES, VALUE_BYTES_MAX, Frame, encode_filler, frames

__all__ = ["rewrite_segment"]

COPY_BYTES: Final = 1_048_576
"""One piece of what is copied, bytes."""


class _Run(Struct):
    """Records that follow each other and are removed."""

    start: int
    end: int
    index: int
    created_at: int


def rewrite_segment(path: Path, records_at: int, removed: Collection[int]) -> bool:
    """Write a closed segment anew without some records; whether there were any.

    Durable and atomic.

    Args:
        path: The segment.
        records_at: Offset of its first record.
        removed: Indices to remove; those that are not there do not matter.

    Raises:
        Corrupt: The segment is damaged; it was left as it is.
        OSError: It could not be written; it was left as it is.
    """
    data = path.read_bytes()
    runs = list(_runs(frames(data, records_at), removed))
    if not runs:
        return False
    temporary = path.with_suffix(".tmp")
    try:
        with temporary.open("wb") as file:
            at = 0
            for run in runs:
                file.write(memoryview(data)[at : run.start])
                file.write(encode_filler(run.index, run.created_at, run.end - run.start))
                file.seek(run.end)
                at = run.end
            file.write(memoryview(data)[at:])
            file.truncate(len(data))
            file.flush()
            os.fsync(file.fileno())
        # Only a hint, which leads into fillers now; it is made again by reading.
        path.with_suffix(".idx").unlink(missing_ok=True)
        temporary.rename(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return True


def _runs(found: Iterator[Frame], removed: Collection[int]) -> Iterator[_Run]:
    """Yield the stretches that become fillers: none longer than a value, none without a removal."""
    run: _Run | None = None
    is_new = False
    for frame in found:
        goes = frame.is_filler or frame.index in removed
        if run is not None and (not goes or frame.end - run.start - HEAD_BYTES > VALUE_BYTES_MAX):
            if is_new:
                yield run
            run, is_new = None, False
        if not goes:
            continue
        is_new = is_new or not frame.is_filler
        if run is None:
            run = _Run(frame.start, frame.end, frame.index, frame.created_at)
        else:
            run.end, run.index, run.created_at = frame.end, frame.index, frame.created_at
    if run is not None and is_new:
        yield run
