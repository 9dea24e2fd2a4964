import errno
import os
import resource
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import pytest

from belog.schemas.errors import (
    BelogError,
    Closed,
    Corrupt,
    IndexConflict,
    InvalidUri,
    LogReplaced,
    NewerFormat,
    OutcomeUnknown,
    Unavailable,
)
from belog.schemas.fold import Record
from belog.storage.file import FileLog
from belog.storage.file_codec import IndexEntry, decode_end, decode_index, encode_index_entry
from belog.storage.file_segments import segment_name
from belog.storage.interface import CopiedRecord
from tests.examples import replica_value
from tests.servers import eventually
from tests.writers import Follower, check_log, fill_up, kill_at_random, observed, writing

LOG_ID = UUID("5b1b1a52-3a3c-4d36-9d2f-5e8f0c2c7b11")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder in memory: these tests open thousands of logs, and each open syncs."""
    made = Path(f"/dev/shm/belog-test-{os.getpid()}-{os.urandom(4).hex()}")  # noqa: S108
    made.mkdir()
    yield made
    shutil.rmtree(made)


def opened(folder: Path, **options: object) -> FileLog:
    log = FileLog(folder, **options)  # type: ignore[arg-type]
    log.initialize(log_id=LOG_ID)
    return log


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def restore(folder: Path, files: dict[str, bytes]) -> None:
    for path in folder.iterdir():
        if path.name not in files:
            path.unlink()
    for name, content in files.items():
        (folder / name).write_bytes(content)


def scanned(folder: Path) -> list[Record]:
    with FileLog(folder) as log:
        log.initialize()
        return log.scan(0)


def scanned_or_corrupt(folder: Path) -> list[Record] | Corrupt:
    try:
        return scanned(folder)
    except Corrupt as error:
        return error


def small_log(folder: Path) -> list[Record]:
    """Two segments, batches of one and of two."""
    with opened(folder, segment_bytes_max=900) as log:
        log.append_batch([observed(1), observed(2)])
        log.append(observed(3))
        log.append_batch([observed(4), observed(5)])
        assert len(list(folder.glob("*.seg"))) == 2
        return log.scan(0)


def damaged(content: bytes, at: int, how: str) -> bytes:
    if how == "cut":
        return content[:at]
    return content[:at] + bytes((content[at] ^ 1 << at % 8,)) + content[at + 1 :]


@pytest.mark.parametrize("how", ["cut", "flip"])
@pytest.mark.parametrize("with_end", [True, False])
def test_damage_at_any_byte_never_gives_a_wrong_record(
    folder: Path,
    how: str,
    with_end: bool,  # noqa: FBT001
) -> None:
    records = small_log(folder)
    whole = files_of(folder)
    if not with_end:
        del whole["end"]
    for name in whole:
        if name == "lock":
            continue
        for at in range(len(whole[name])):
            restore(folder, {**whole, name: damaged(whole[name], at, how)})
            found = scanned_or_corrupt(folder)
            if isinstance(found, Corrupt):
                assert name.endswith(".seg"), (name, at, str(found))
                assert ".seg" in str(found)
                continue
            assert found == records[: len(found)], (name, at)
            if with_end or not name.endswith(".seg"):
                assert len(found) == len(records), (name, at)


def test_a_torn_tail_is_cut_off_whole_and_told(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(folder) as log:
        log.append(observed(1))
        before = files_of(folder)
        log.append_batch([observed(2), observed(3)])
    segment = "00000000000000000000.seg"
    after = files_of(folder)[segment]
    start = len(before[segment])
    for length in range(start + 1, len(after)):
        # As after a crash: the mark is still where it was, the batch is not whole.
        restore(folder, {**before, segment: after[:length]})
        caplog.clear()
        with opened(folder) as log:
            assert [r.position for r in log.scan(0)] == [0, 1]
            assert log.torn is not None
            assert (log.torn.offset, log.torn.length_bytes) == (start, length - start)
            assert f"cut {length - start} bytes" in caplog.text
            assert log.append(observed(9)).index == 2
        assert len(scanned(folder)) == 3


def test_damage_within_what_was_durable_is_no_torn_tail(folder: Path) -> None:
    with opened(folder) as log:
        for n in range(1, 5):
            log.append(observed(n))
    files = files_of(folder)
    name = "00000000000000000000.seg"
    del files["end"]
    content = bytearray(files[name])
    content[len(content) // 2] ^= 1
    restore(folder, {**files, name: bytes(content)})
    with pytest.raises(Corrupt, match=rf"{name} is damaged .* offset \d+"):
        scanned(folder)
    assert files_of(folder)[name] == bytes(content)


def test_a_missing_segment_is_corrupt(folder: Path) -> None:
    small_log(folder)
    (folder / "00000000000000000000.seg").unlink()
    with pytest.raises(Corrupt, match="is missing"):
        scanned(folder)


def test_the_end_of_another_log_is_refused(folder: Path) -> None:
    small_log(folder / "a")
    with FileLog(folder / "b") as log:
        log.initialize()
    shutil.copy(folder / "a" / "end", folder / "b" / "end")
    with pytest.raises(LogReplaced):
        scanned(folder / "b")


def test_a_newer_format_is_refused_and_left_alone(folder: Path) -> None:
    from zlib import crc32  # noqa: PLC0415

    small_log(folder)
    path = folder / "00000000000000000000.seg"
    content = bytearray(path.read_bytes())
    size = int.from_bytes(content[12:16], "little")
    content[8:10] = (2).to_bytes(2, "little")
    content[size - 4 : size] = crc32(bytes(content[: size - 4])).to_bytes(4, "little")
    path.write_bytes(content)
    with pytest.raises(NewerFormat, match="version 2"):
        scanned(folder)
    assert path.read_bytes() == bytes(content)


@pytest.mark.parametrize("kind", ["file", "strangers", "no parent"])
def test_what_is_no_log_is_refused_and_left_alone(tmp_path: Path, kind: str) -> None:
    target = tmp_path / "log"
    if kind == "file":
        target.write_text("mine")
    elif kind == "strangers":
        target.mkdir()
        (target / "letter.txt").write_text("mine")
    else:
        target = tmp_path / "nowhere" / "log"
    before = sorted(tmp_path.rglob("*"))
    log = FileLog(target)
    with pytest.raises(InvalidUri):
        log.initialize()
    if kind != "no parent":
        with pytest.raises(InvalidUri):
            log.identify()
    assert sorted(tmp_path.rglob("*")) == before


def test_segments_follow_each_other_and_the_index_is_only_a_hint(folder: Path) -> None:
    with opened(folder, segment_bytes_max=200_000) as log:
        n = 0
        while len(list(folder.glob("*.seg"))) < 4:
            log.append_batch([observed(n + i) for i in range(50)])
            n += 50
        total = log.next_position()
    assert sum(path.stat().st_size for path in folder.glob("*.idx")) > 0
    for state in ("whole", "damaged", "missing"):
        for path in folder.glob("*.idx"):
            if state == "damaged":
                # Whole entries that lead astray.
                entries = [
                    IndexEntry(entry.index, entry.offset + 1)
                    for entry in decode_index(path.read_bytes())
                ]
                path.write_bytes(b"".join(map(encode_index_entry, entries)))
            elif state == "missing":
                path.unlink()
        with FileLog(folder) as log:
            log.initialize()
            for since in (total - 1, 0, total // 2, total // 3):
                found = log.scan(since, 7)
                assert [r.position for r in found] == list(range(since, min(since + 7, total)))
            assert len(log.scan(0)) == min(total, 10_000)


def test_one_process_writes_and_others_are_told_which(folder: Path) -> None:
    with writing(f"file://{folder}/log", "child", batches=1) as (writer,):
        writer.until_done()
        with FileLog(folder / "log") as log:
            log.initialize()
            check_log(log, writer.acknowledged)
            with pytest.raises(Unavailable, match=f"process {writer.process.pid} writes"):
                log.append(observed(1))
            writer.end()
            index = log.append(observed(1)).index
            assert index == len(writer.acknowledged) + 1


def test_followers_of_another_process_miss_nothing(folder: Path, seed: int) -> None:
    uri = f"file://{folder}/log"
    with writing(uri, "child", batches=250, threads=4, seed=seed) as (writer,):
        eventually((folder / "log" / "end").exists, unless=writer.died)
        followers: list[Follower] = []
        for _ in range(2):
            log = FileLog(folder / "log")
            log.initialize()
            followers.append(Follower(log))
        writer.until_done()
        total = len(writer.acknowledged) + 1
        for follower in followers:
            follower.until(total)
            follower.end()
            assert follower.indices == list(range(total))


@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_kill_at_any_moment_loses_nothing_acknowledged(tmp_path: Path, seed: int) -> None:
    kill_at_random(f"file://{tmp_path}/log", seed, threads=3)


@contextmanager
def limited_files(folder: Path) -> Iterator[Callable[[], None]]:
    """Files cannot grow over a size; the given function lifts the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    size = max(path.stat().st_size for path in folder.iterdir())
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 5_000, hard))
    try:
        yield lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A disk of 64 kB mounted at a folder; for root only."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def check_full_disk(log: FileLog, make_room: Callable[[], None]) -> None:
    done = fill_up(log, 10_000)
    assert fill_up(log, 20_000) == 0
    end = decode_end((log.folder / "end").read_bytes())
    assert end is not None
    # Nothing of what was refused is left, or a crash could bring it back.
    assert (log.folder / segment_name(end.segment)).stat().st_size == end.offset
    assert [r.position for r in log.scan(0)] == list(range(2 * done + 1))
    make_room()
    assert log.append(observed(30_000)).index == 2 * done + 1
    with FileLog(log.folder) as reader:
        reader.initialize()
        assert [r.position for r in reader.scan(0)] == list(range(2 * done + 2))


def test_a_file_that_cannot_grow_leaves_no_half_event(tmp_path: Path) -> None:
    with opened(tmp_path / "log") as log, limited_files(tmp_path / "log") as lift:
        check_full_disk(log, lift)


@pytest.mark.parametrize("disk", [small_disk] if os.geteuid() == 0 else [])
def test_a_full_disk_leaves_no_half_event(tmp_path: Path, disk: Callable[..., Path]) -> None:
    with disk(tmp_path):
        (tmp_path / "ballast").write_bytes(bytes(16_384))
        with opened(tmp_path / "log") as log:
            check_full_disk(log, (tmp_path / "ballast").unlink)


def test_a_full_disk_while_a_segment_is_closed(tmp_path: Path) -> None:
    with opened(tmp_path / "log", segment_bytes_max=3_000) as log:
        log.append_batch([observed(n) for n in range(12)])
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (60, hard))
        try:
            with pytest.raises(Unavailable, match="nothing was written"):
                log.append(observed(50))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert log.append(observed(51)).index == 13
    assert len(scanned(tmp_path / "log")) == 14


def test_a_failed_sync_is_final(folder: Path) -> None:
    broken = threading.Event()

    def sync(descriptor: int) -> None:
        if broken.is_set():
            raise OSError(errno.EIO, "Input/output error")
        os.fdatasync(descriptor)

    log = opened(folder / "log", sync=sync)
    log.append(observed(1))
    broken.set()
    with pytest.raises(OutcomeUnknown) as unknown:
        log.append(observed(2))
    assert unknown.value.event_id == observed(2).event_id
    broken.clear()
    with pytest.raises(Unavailable, match="a sync failed before"):
        log.append(observed(3))
    # What is not known to be durable is not shown.
    assert [r.position for r in log.scan(0)] == [0, 1]
    log.close()
    with pytest.raises(Closed):
        log.append(observed(4))
    with opened(folder / "log") as again:
        assert again.next_position() in {2, 3}
        again.append(observed(5))


def test_threads_share_a_sync(folder: Path) -> None:
    syncs = 0
    gate = threading.Event()

    def sync(descriptor: int) -> None:
        nonlocal syncs
        syncs += 1
        gate.wait(30)
        os.fdatasync(descriptor)

    with opened(folder / "log", sync=sync) as log:
        threads = [threading.Thread(target=log.append, args=(observed(n),)) for n in range(8)]
        threads[0].start()
        eventually(lambda: syncs == 1)
        for thread in threads[1:]:
            thread.start()
        eventually(lambda: len(log._group._waiting) == 7)  # noqa: SLF001
        gate.set()
        for thread in threads:
            thread.join()
        assert syncs == 2
        assert [r.position for r in log.scan(0)] == list(range(9))


def test_conditions_within_one_group_see_each_other(folder: Path) -> None:
    gate = threading.Event()
    reached = threading.Event()

    def sync(descriptor: int) -> None:
        reached.set()
        gate.wait(30)
        os.fdatasync(descriptor)

    with opened(folder / "log", sync=sync) as log:
        outcomes: list[object] = []

        def append(n: int, subject: str) -> None:
            try:
                outcomes.append(log.append_unless_touched([observed(n, subject)], seen_idx=2))
            except BelogError as error:
                outcomes.append(error)

        first = threading.Thread(target=log.append, args=(observed(1),))
        first.start()
        reached.wait(30)
        threads = [
            threading.Thread(target=append, args=(n, subject))
            for n, subject in ((2, "data://same"), (3, "data://same"), (4, "data://other"))
        ]
        for thread in threads:
            thread.start()
        eventually(lambda: len(log._group._waiting) == 3)  # noqa: SLF001
        gate.set()
        for thread in [first, *threads]:
            thread.join()
        assert sum(isinstance(outcome, IndexConflict) for outcome in outcomes) == 1
        assert log.next_position() == 4


def test_a_replica_keeps_indices_with_holes(folder: Path) -> None:
    values = {
        index: replica_value(observed(index), index, index - 1) for index in (0, 3, 4, 1_000_000)
    }
    with FileLog(folder / "log", segment_bytes_max=1_000) as log:
        log.initialize(log_id=LOG_ID, replica=True)
        after = -1
        for index, value in values.items():
            log.copy_records([CopiedRecord(index, 5, value)], after=after)
            after = index
        with pytest.raises(IndexConflict):
            log.copy_records([CopiedRecord(1_000_001, 5, values[4])], after=4)
        with pytest.raises(BelogError, match="replica"):
            log.append(observed(1))
    with FileLog(folder / "log") as log:
        log.initialize(replica=True)
        assert [(r.position, r.value) for r in log.scan(0)] == list(values.items())
        assert [r.position for r in log.scan(5)] == [1_000_000]
        assert log.next_position() == 1_000_001
