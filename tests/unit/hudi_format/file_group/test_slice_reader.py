"""Reading a slice of base and log files, against a model that looks at one record after the other.

The model is written from the rules (FORMAT.md, section 7), not from the code: the logs come to one
change per key first, then that change meets the base row.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testing.memory_storage import InMemoryStorage
from tidemark.hudi_format.errors import CorruptFileError, FileMissingError, UnsupportedTableError
from tidemark.hudi_format.file_group.base_file import attach_meta_columns, write_base_file
from tidemark.hudi_format.file_group.changes import Deletes
from tidemark.hudi_format.file_group.log_blocks import check_log_blocks, data_log_bytes
from tidemark.hudi_format.file_group.slice_ordering import SliceOrderingCache, slice_ordering
from tidemark.hudi_format.file_group.slice_reader import read_slice
from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.log_file.blocks import BlockType, HeaderKey, frame_block
from tidemark.hudi_format.ordering import NO_ORDERING, OrderingField
from tidemark.hudi_format.schema import META_COLUMNS, TableSchema
from tidemark.hudi_format.table_config import MergeMode

SCHEMA = TableSchema.from_arrow(
    "t",
    pa.schema(
        [
            pa.field("id", pa.string(), nullable=False),
            pa.field("ts", pa.int64()),
            pa.field("v", pa.string()),
            pa.field("_hoodie_is_deleted", pa.bool_()),
        ]
    ),
)
ORDERING = OrderingField.of(SCHEMA, "ts")
EVENT, COMMIT = MergeMode.EVENT_TIME_ORDERING, MergeMode.COMMIT_TIME_ORDERING
FILE_ID = "5c1b2f3a-0000-4000-8000-000000000001-0"

NO_ORDERING_SCHEMA = '{"type":"record","name":"r","fields":[{"name":"id","type":"string"}]}'

Row = tuple[str, int, str, bool]


@dataclass
class Log:
    """One log file: data rows (key, ordering, value, says it is deleted) and deletes (key, ordering or
    None).
    """

    rows: list[Row] = field(default_factory=list)
    deletes: list[tuple[str, int | None]] = field(default_factory=list)


def instant(number: int) -> str:
    return f"2026010100000{number:04d}"


def rows_table(rows: list[Row], number: int, name: str) -> pa.Table:
    user = pa.table(
        [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in SCHEMA.arrow],
        schema=SCHEMA.arrow,
    )
    return attach_meta_columns(user, user.column("id"), "eu", instant(number), 0, name)


def deletes_of(pairs: list[tuple[str, int | None]]) -> Deletes:
    ordering = np.array([NO_ORDERING if value is None else value for _, value in pairs], np.int64)
    return Deletes.with_ordering(pa.array([key for key, _ in pairs], pa.string()), ordering)


def stored_slice(
    storage: InMemoryStorage, base: list[Row] | None, logs: list[Log], mode: MergeMode
) -> FileSlice:
    base_name = f"{FILE_ID}_0-0-0_{instant(0)}.parquet" if base is not None else None
    if base is not None:
        storage.create(f"eu/{base_name}", write_base_file(rows_table(base, 0, str(base_name)), SCHEMA))
    names = []
    ordering = ORDERING if mode is EVENT else None
    for number, log in enumerate(logs, 1):
        name = f".{FILE_ID}_{instant(number)}.log.1_0-0-0"
        deletes = deletes_of(log.deletes if mode is EVENT else [(key, None) for key, _ in log.deletes])
        content = data_log_bytes(
            SCHEMA, instant(number), rows_table(log.rows, number, FILE_ID), deletes, "eu", ordering
        )
        storage.create(f"eu/{name}", content)
        names.append(name)
    return FileSlice("eu", FILE_ID, base_name, instant(0), tuple(names))


@dataclass
class State:
    """What the model knows of a key in the logs: value None = deleted, ordering None = whatever is stored."""

    ordering: int | None
    value: str | None


def model(
    base: list[Row] | None, logs: list[Log], mode: MergeMode
) -> tuple[dict[str, str], dict[str, tuple[int, bool]]]:
    """(live rows, per known key the ordering value to reach and whether it is deleted)."""
    state: dict[str, State] = {}
    for log in logs:
        changes = [(key, State(ts, None if gone else value)) for key, ts, value, gone in log.rows]
        changes += [(key, State(ts, None)) for key, ts in log.deletes if ts is not None]
        changes += [(key, State(None, None)) for key, ts in log.deletes if ts is None]
        for key, new in changes:
            old = state.get(key)
            by_arrival = mode is COMMIT or old is None
            known = old.ordering if old is not None else None
            if by_arrival or known is None or new.ordering is None or new.ordering >= known:
                state[key] = new
    live = {key: value for key, _, value, _ in base or []}
    reach = {key: (ts, False) for key, ts, _, _ in base or []}
    for key, new in state.items():
        stored = reach.get(key)
        ordering = NO_ORDERING if new.ordering is None else new.ordering
        loses = mode is EVENT and stored is not None and new.ordering is not None and stored[0] > ordering
        if loses:
            continue
        live.pop(key, None)
        if new.value is not None:
            live[key] = new.value
        highest = ordering if stored is None else max(stored[0], ordering)
        reach[key] = (highest, new.value is None)
    return live, reach


KEYS = st.sampled_from([f"k{number}" for number in range(6)])
TIMES = st.integers(min_value=-2, max_value=4)


@st.composite
def slices(draw: st.DrawFn) -> tuple[list[Row] | None, list[Log]]:
    numbers = iter(range(10_000))

    def row(key: str, gone: bool) -> Row:
        return key, draw(TIMES), f"v{next(numbers)}", gone

    base = None
    if draw(st.booleans()):
        base = [row(key, False) for key in draw(st.lists(KEYS, unique=True))]
    logs = []
    for _ in range(draw(st.integers(0, 4))):
        keys = draw(st.lists(KEYS, unique=True, min_size=1))
        split = draw(st.integers(0, len(keys)))
        deletes = [(key, draw(st.one_of(st.none(), TIMES))) for key in keys[split:]]
        logs.append(Log([row(key, draw(st.integers(0, 5)) == 0) for key in keys[:split]], deletes))
    return base, logs


@settings(max_examples=80, deadline=None)
@given(slices(), st.sampled_from([EVENT, COMMIT]))
def test_slice_reads_as_the_model_says(made: tuple[list[Row] | None, list[Log]], mode: MergeMode) -> None:
    base, logs = made
    storage = InMemoryStorage()
    file_slice = stored_slice(storage, base, logs, mode)
    ordering = ORDERING if mode is EVENT else None
    rows = read_slice(storage, file_slice, SCHEMA, mode, ordering)
    live, reach = model(base, logs, mode)
    assert rows.num_rows == len(live)
    assert dict(zip(rows["id"].to_pylist(), rows["v"].to_pylist(), strict=True)) == live
    assert rows.schema.equals(SCHEMA.arrow_with_meta)
    narrow = read_slice(storage, file_slice, SCHEMA, mode, ordering, columns=["v"])
    assert sorted(narrow["v"].to_pylist()) == sorted(live.values())
    assert narrow.column_names == ["v"]

    asked = pa.array(["none", *[f"k{number}" for number in range(6)], "k0"])
    cache = SliceOrderingCache(1 << 20)
    for _ in range(2):
        got = slice_ordering(storage, file_slice, SCHEMA, asked, mode, ordering, cache)
        for position, key in enumerate(asked.to_pylist()):
            assert bool(got.found[position]) == (key in reach)
            if key in reach:
                highest, deleted = reach[key]
                assert bool(got.is_deleted[position]) == deleted
                assert got.ordering[position] == (highest if mode is EVENT else 0)


def test_uncounted_resurrection_is_read_as_hudi_reads_it() -> None:
    """An unconditional delete, then a row below the base row's ordering: the old base row is back
    (FORMAT.md, section 7.3).
    """
    storage = InMemoryStorage()
    base: list[Row] = [("k", 10, "old", False)]
    logs = [Log(deletes=[("k", None)]), Log(rows=[("k", 3, "new", False)])]
    file_slice = stored_slice(storage, base, logs, EVENT)
    assert read_slice(storage, file_slice, SCHEMA, EVENT, ORDERING)["v"].to_pylist() == ["old"]


def test_log_rows_keep_their_commit_time_and_bare_file_id() -> None:
    storage = InMemoryStorage()
    file_slice = stored_slice(
        storage, [("a", 1, "x", False), ("b", 1, "y", False)], [Log(rows=[("b", 2, "z", False)])], EVENT
    )
    rows = read_slice(storage, file_slice, SCHEMA, EVENT, ORDERING, columns=[*META_COLUMNS, "v"]).to_pylist()
    assert [tuple(row.values()) for row in rows] == [
        (instant(0), f"{instant(0)}_0_0", "a", "eu", f"{FILE_ID}_0-0-0_{instant(0)}.parquet", "x"),
        (instant(1), f"{instant(1)}_0_0", "b", "eu", FILE_ID, "z"),
    ]


def test_files_from_before_a_column_was_added_read_null_for_it() -> None:
    storage = InMemoryStorage()
    file_slice = stored_slice(storage, [("a", 1, "x", False)], [Log(rows=[("b", 1, "y", False)])], EVENT)
    wider = TableSchema.from_arrow("t", SCHEMA.arrow.append(pa.field("added", pa.date32())))
    rows = read_slice(storage, file_slice, wider, EVENT, ORDERING, columns=["id", "added"])
    assert rows.to_pylist() == [{"id": "a", "added": None}, {"id": "b", "added": None}]


def test_missing_and_damaged_files_are_named() -> None:
    storage = InMemoryStorage()
    file_slice = stored_slice(storage, [("a", 1, "x", False)], [Log(rows=[("b", 1, "y", False)])], EVENT)
    log = f"eu/{file_slice.log_files[0]}"
    whole = storage.read(log)
    storage.replace(log, whole[:-9])
    with pytest.raises(CorruptFileError, match="log"):
        read_slice(storage, file_slice, SCHEMA, EVENT, ORDERING)
    storage.replace(f"eu/{file_slice.base_file}", b"PAR1 no")
    with pytest.raises(CorruptFileError, match=r"\.parquet"):
        read_slice(storage, file_slice, SCHEMA, EVENT, ORDERING)
    storage.delete(log)
    storage.replace(f"eu/{file_slice.base_file}", write_base_file(rows_table([], 0, "x"), SCHEMA))
    with pytest.raises(FileMissingError):
        read_slice(storage, file_slice, SCHEMA, EVENT, ORDERING)


@pytest.mark.parametrize(
    ("block_type", "extra"),
    [
        (BlockType.CDC_DATA, {}),
        (BlockType.HFILE_DATA, {}),
        (BlockType.COMMAND, {}),
        (BlockType.PARQUET_DATA, {HeaderKey.IS_PARTIAL: "true", HeaderKey.SCHEMA: NO_ORDERING_SCHEMA}),
    ],
)
def test_block_that_is_not_served_is_refused(block_type: BlockType, extra: dict[HeaderKey, str]) -> None:
    storage = InMemoryStorage()
    headers = {HeaderKey.INSTANT_TIME: instant(1), HeaderKey.SCHEMA: SCHEMA.avro_with_meta_json, **extra}
    storage.create("eu/.f_1.log.1_0-0-0", frame_block(block_type, headers, b""))
    file_slice = FileSlice("eu", "f", None, instant(1), (".f_1.log.1_0-0-0",))
    with pytest.raises(UnsupportedTableError, match="Compact this file group"):
        read_slice(storage, file_slice, SCHEMA, EVENT, ORDERING)
    with pytest.raises(UnsupportedTableError, match=r"eu/\.f_1\.log\.1_0-0-0 holds"):
        check_log_blocks(storage, "eu/.f_1.log.1_0-0-0", "ts")


def test_ordering_cache_stays_below_its_limit_and_drops_the_oldest() -> None:
    storage = InMemoryStorage()
    file_slice = stored_slice(
        storage,
        [(f"b{number}", 1, "x", False) for number in range(100)],
        [Log(rows=[(f"l{log}-{number}", 1, "y", False) for number in range(100)]) for log in range(5)],
        EVENT,
    )
    whole = SliceOrderingCache(1 << 20)
    slice_ordering(storage, file_slice, SCHEMA, pa.array(["b1"]), EVENT, ORDERING, whole)
    limit = whole.nbytes // 2
    small = SliceOrderingCache(limit)
    for _ in range(3):
        got = slice_ordering(
            storage, file_slice, SCHEMA, pa.array(["b1", "l4-9", "l0-1"]), EVENT, ORDERING, small
        )
        assert got.found.all()
        assert 0 < small.nbytes <= limit
    # With everything held, the files are not read again.
    for path in file_slice.paths():
        storage.delete(path)
    assert slice_ordering(
        storage, file_slice, SCHEMA, pa.array(["b1", "x"]), EVENT, ORDERING, whole
    ).found.tolist() == [True, False]
