"""Small disks, and disks that are full.

A disk can only be filled where a deployment was built on a small one: `small_disk` is a tmpfs, for
root, and `is_small` tells one. For a broker it is mounted over the server's data directory before
its first start.
"""

import contextlib
import errno
import os
import random
import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, Final
from urllib.parse import unquote

from tests.chaos.deployment import Deployment
from tests.chaos.faults.basis import BaseFault, local_server

__all__ = [
    "SMALL_BYTES_MAX",
    "DiskFull",
    "can_mount",
    "fill",
    "is_small",
    "make_room",
    "small_disk",
]

SMALL_BYTES_MAX: Final = 256 * 1024 * 1024
"""A disk up to this size was made for a test; nobody's real one is filled, bytes."""

BALLAST: Final = "chaos-ballast"
CHUNK_BYTES: Final = 4_096
"""The ballast grows by so much at last: a page, so that nothing is left."""


def can_mount() -> bool:
    """Whether `small_disk` can be used here."""
    return os.geteuid() == 0


@contextmanager
def small_disk(folder: Path, size_kb: int) -> Generator[Path]:
    """Mount a disk of *size_kb* at *folder*, for root only; what it holds goes with it."""
    options = f"size={size_kb}k,mode=755"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        # Lazily: a server that was killed may still hold a file for a moment.
        subprocess.run(["umount", "-l", folder], check=True)


def is_small(folder: Path) -> bool:
    """Whether *folder* lies on a disk that may be filled."""
    return folder.is_dir() and shutil.disk_usage(folder).total <= SMALL_BYTES_MAX


def fill(folder: Path) -> None:
    """Take all room that is left on a small disk.

    Raises:
        ValueError: It is not a small one.
    """
    if not is_small(folder):
        raise ValueError(f"{folder} is not on a small disk")
    chunk = bytes(1024 * CHUNK_BYTES)
    with (folder / BALLAST).open("ab", buffering=0) as ballast:
        while chunk:
            try:
                ballast.write(chunk)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                chunk = chunk[: len(chunk) // 2] if len(chunk) > CHUNK_BYTES else b""


def make_room(folder: Path) -> None:
    """Give back what `fill` took. May be called again."""
    with contextlib.suppress(FileNotFoundError):
        (folder / BALLAST).unlink()


class DiskFull(BaseFault):
    """The disk below the log is full: an error, no half event, and it goes on with room again."""

    name = "disk-full"
    does: ClassVar[str] = "no room below SQLite, files, Delta, or a broker's or PostgreSQL's data"
    hold_s = (0.5, 2.0)

    def applies_to(self, deployment: Deployment) -> bool:
        return is_small(place_of(deployment))

    def inject(self, deployment: Deployment, rng: random.Random) -> None:
        del rng
        fill(place_of(deployment))

    def heal(self, deployment: Deployment) -> None:
        make_room(place_of(deployment))


def place_of(deployment: Deployment) -> Path:
    """Return the folder that the log of a deployment lies in; one that is not, where elsewhere."""
    if deployment.backend in {"kafka", "postgres"}:
        found = local_server(deployment, "broker" if deployment.backend == "kafka" else "postgres")
        return found[2].dir if found else Path(os.devnull)
    path = Path(unquote(deployment.log_uri.partition("://")[2].partition("?")[0]))
    return path.parent if deployment.backend == "sqlite" else path
