"""The SQLite log where there is no room."""

import os
import resource
import sqlite3
import subprocess
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

import pytest

from belog.schemas.errors import Unavailable
from belog.storage.sqlite import SqliteLog
from tests.writers import fill_up, observed

DISK_KB = 400
BALLAST_BYTES = 200_000


@contextmanager
def small_disk(folder: Path) -> Generator[Callable[[], None]]:
    """A disk of 400 kB mounted at a folder, for root only; the given function makes room."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_KB}k", "tmpfs", str(folder)]
    subprocess.run(mount, check=True)
    try:
        (folder / "ballast").write_bytes(bytes(BALLAST_BYTES))
        yield (folder / "ballast").unlink
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@contextmanager
def limited_files(_: Path) -> Generator[Callable[[], None]]:
    """Files cannot grow over a size; the given function lifts the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (BALLAST_BYTES, hard))
    try:
        yield lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize(
    "limit", [limited_files, *([small_disk] if os.geteuid() == 0 else [])], ids=lambda f: f.__name__
)
def test_a_full_disk_leaves_no_half_event(
    tmp_path: Path, limit: Callable[[Path], AbstractContextManager[Callable[[], None]]]
) -> None:
    with limit(tmp_path) as make_room, SqliteLog(tmp_path / "log.db") as log:
        log.initialize()
        done = fill_up(log, 10_000)
        assert done > 0
        with pytest.raises(Unavailable, match="nothing was written"):
            log.append_batch([observed(20_000 + n) for n in range(1_000)])
        held = list(range(2 * done + 1))
        assert [r.position for r in log.scan(0)] == held
        with SqliteLog(log.path) as other:
            other.initialize()
            assert [r.position for r in other.scan(0)] == held
        make_room()
        assert log.append(observed(30_000)).index == len(held)
        with SqliteLog(log.path) as other:
            other.initialize()
            assert [r.position for r in other.scan(0)] == [*held, len(held)]
        with closing(sqlite3.connect(log.path)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@pytest.mark.parametrize("disk_kb", [16] if os.geteuid() == 0 else [])
def test_no_room_for_a_new_log(tmp_path: Path, disk_kb: int) -> None:
    size = f"size={disk_kb}k"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(tmp_path)], check=True)
    try:
        (tmp_path / "ballast").write_bytes(bytes(disk_kb * 1024))
        with SqliteLog(tmp_path / "log.db") as log:
            with pytest.raises(Unavailable):
                log.initialize()
            (tmp_path / "ballast").unlink()
            subprocess.run(["mount", "-o", "remount,size=400k", str(tmp_path)], check=True)
            log.initialize()
            assert log.append(observed(1)).index == 1
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)
