"""A fold or tables restored from a snapshot go on as if they had never stopped."""

import io
import random
import re
from tempfile import TemporaryDirectory

from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from belog.processors.rows import Row
from belog.processors.snapshots import image_of_tables, read_tables, save_tables
from belog.processors.table_fold import TableFold
from belog.schemas.errors import Corrupt, NewerFormat
from belog.schemas.fold import Accepted, Fold, Record
from belog.schemas.limits import DUPLICATE_WINDOW_EVENTS
from belog.schemas.replica import ReplicaEncoder
from belog.schemas.snapshot import RowBlock, SnapshotReader
from belog.schemas.snapshot_writer import image_of, write_snapshot
from belog.storage.snapshots import SnapshotStore
from tests.examples import LOG_ID, T0, apply_all, created, event, record, state_of
from tests.table_logs import random_records

SEEDS = st.integers(0, 2**32)
EXPECTED = "33dcbf6d9f880a77193c25fba1ec354e07e80d90baa7ecfcc7167c195f00cb5b"
ROWS = [RowBlock("partition", 2, b"opaque"), RowBlock("build", 1, b"")]


def written(fold: Fold, rows: list[RowBlock] | None = None) -> bytes:
    stream = io.BytesIO()
    blocks = rows or []
    count = sum(block.count for block in blocks)
    write_snapshot(
        stream, image_of(fold), blocks, taken_at=T0, rows_version=int(bool(rows)), row_count=count
    )
    return stream.getvalue()


def restored(data: bytes) -> tuple[Fold, list[RowBlock]]:
    reader = SnapshotReader(io.BytesIO(data))
    return reader.fold(), list(reader.rows())


def replica_of(records: list[Record]) -> list[Record]:
    """A replica of a log, at positions of its own."""
    fold, encoder = Fold(), ReplicaEncoder(LOG_ID.bytes, -1)
    found: list[Record] = []
    for item in records:
        outcome = fold.apply(item)
        if outcome is not None and isinstance(outcome.verdict, Accepted) and item.value:
            value = encoder.encode(outcome.index, outcome.created_at, item.value)
            found.append(Record(2 * len(found), T0, value))
    return found


@given(SEEDS, st.integers(2, 120), st.sampled_from(["primary", "replica"]), st.data())
def test_folding_on_gives_what_a_full_fold_gives(
    seed: int, count: int, kind: str, data: st.DataObject
) -> None:
    records = random_records(random.Random(seed), count)
    if kind == "replica":
        records = replica_of(records)
    cut = data.draw(st.integers(1, len(records)))
    first = Fold()
    apply_all(first, records[:cut])
    again, rows = restored(written(first, ROWS))
    assert rows == ROWS
    assert state_of(again) == state_of(first)
    assert apply_all(again, records[cut:]) == apply_all(first, records[cut:])
    assert state_of(again) == state_of(first)


def test_the_window_is_restored_in_its_order() -> None:
    count = DUPLICATE_WINDOW_EVENTS + 500
    observed = [event("v1.partition.observed", f"p{n % 90}", {}, n=n) for n in range(1, count)]
    records = [record(0, created()), *(record(n, e) for n, e in enumerate(observed, 1))]
    # Repeats from before the window and from within: judged by what the window holds.
    repeats = [record(count + n, observed[at]) for n, at in enumerate((0, 300, 499, 500, 700, -1))]
    whole = Fold()
    apply_all(whole, records)
    again, _ = restored(written(whole))
    assert state_of(again) == state_of(whole)
    assert apply_all(again, repeats) == apply_all(whole, repeats)
    assert state_of(again) == state_of(whole)


def all_rows(tables: TableFold) -> dict[tuple[str, str], Row]:
    return {(row.kind, row.row_id): row for row in tables.rows()}


def through_a_file(tables: TableFold) -> TableFold:
    with TemporaryDirectory() as folder:
        store = SnapshotStore(folder)
        taken = save_tables(store, image_of_tables(tables), taken_at=T0)
        with store.open(taken.file) as reader:
            assert reader.header == taken.header
            read = read_tables(reader)
            assert reader.digest == taken.digest
            return read


@given(SEEDS, st.integers(2, 120), st.data())
def test_tables_go_on_as_well(seed: int, count: int, data: st.DataObject) -> None:
    records = random_records(random.Random(seed), count)
    cut = data.draw(st.integers(1, len(records)))
    whole = TableFold()
    whole.apply(records[:cut])
    again = through_a_file(whole)
    assert again.apply(records[cut:]) == whole.apply(records[cut:])
    assert all_rows(again) == all_rows(whole)
    assert state_of(again.fold) == state_of(whole.fold)


@given(SEEDS, st.integers(2, 60), st.data())
def test_no_damage_is_read(seed: int, count: int, data: st.DataObject) -> None:
    fold = Fold()
    apply_all(fold, random_records(random.Random(seed), count))
    good = written(fold, ROWS)
    bad = bytearray(good)
    at = data.draw(st.integers(0, len(good) - 1))
    how = data.draw(st.sampled_from(["flip", "cut", "longer", "zeros"]))
    if how == "flip":
        bad[at] ^= 1 << data.draw(st.integers(0, 7))
    elif how == "cut":
        del bad[at:]
    elif how == "longer":
        bad += bad[at:]
    else:
        bad[at : at + 64] = bytes(len(bad[at : at + 64]))
    if bad == good:
        return
    try:
        restored(bytes(bad))
    except (Corrupt, NewerFormat):
        return
    raise AssertionError(how)


def test_equal_folds_give_equal_bytes() -> None:
    records = random_records(random.Random(7), 300)
    one, other = Fold(), Fold()
    apply_all(one, records)
    apply_all(other, records)
    assert written(one, ROWS) == written(other, ROWS)


def test_the_bytes_do_not_change_by_accident() -> None:
    fold = Fold()
    apply_all(fold, random_records(random.Random(1), 200))
    data = written(fold, ROWS)
    # Without the text of the schema, which is the library's to write, and what hashes it.
    parts = re.sub(rb"\x02\x42\x08.{32}", b"", data[data.index(LOG_ID.bytes) :], flags=re.DOTALL)
    found = blake3(parts).hexdigest()
    assert found == EXPECTED, "the format changed; if that is meant, raise FORMAT_VERSION"
