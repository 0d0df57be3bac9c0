"""Log files that hold some columns only (MERGE INTO) and log files that stand for others (log compaction),
read as a plain model of Hudi's rules says.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testing.memory_storage import InMemoryStorage
from tests.unit.hudi_format.file_group.test_slice_reader import deletes_of, instant
from tidemark.hudi_format.errors import UnsupportedTableError
from tidemark.hudi_format.file_group.base_file import attach_meta_columns, write_base_file
from tidemark.hudi_format.file_group.delete_records import delete_block_contents
from tidemark.hudi_format.file_group.key_versions import KeyReader
from tidemark.hudi_format.file_group.log_blocks import check_log_blocks
from tidemark.hudi_format.file_group.readable_logs import ReadableLogs
from tidemark.hudi_format.file_group.slice_ordering import SliceOrderingCache, slice_ordering
from tidemark.hudi_format.file_group.slice_reader import read_slice
from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.log_file import BlockType, HeaderKey, frame_block
from tidemark.hudi_format.ordering import OrderingField
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.table_config import MergeMode

FIELDS = ("a", "b")
SCHEMA = TableSchema.from_arrow(
    "t", pa.schema([("id", pa.string()), ("ts", pa.int64()), *((name, pa.string()) for name in FIELDS)])
)
ORDERING = OrderingField.of(SCHEMA, "ts")
EVENT, COMMIT = MergeMode.EVENT_TIME_ORDERING, MergeMode.COMMIT_TIME_ORDERING
FILE_ID = "5c1b2f3a-0000-4000-8000-000000000001-0"
Values = dict[str, str]


@dataclass
class Log:
    """`columns`: what its rows hold of FIELDS. `rows`: key -> (ordering, values)."""

    columns: tuple[str, ...] = FIELDS
    rows: dict[str, tuple[int, Values]] = field(default_factory=dict)
    deletes: dict[str, int | None] = field(default_factory=dict)
    folds: str = ""


def table_of(rows: dict[str, tuple[int, Values]], columns: tuple[str, ...], number: int) -> pa.Table:
    records = [
        {"id": key, "ts": ts, **{name: values[name] for name in columns}}
        for key, (ts, values) in rows.items()
    ]
    schema = pa.schema([SCHEMA.arrow.field(name) for name in ("id", "ts", *columns)])
    user = pa.Table.from_pylist(records, schema=schema)
    return attach_meta_columns(user, user.column("id"), "eu", instant(number), 0, FILE_ID)


def blocks(log: Log, number: int, mode: MergeMode) -> bytes:
    headers = {HeaderKey.INSTANT_TIME: instant(number)}
    if log.folds:
        headers[HeaderKey.COMPACTED_BLOCK_TIMES] = log.folds
    found = []
    if log.rows:
        sink = io.BytesIO()
        pq.write_table(table_of(log.rows, log.columns, number), sink)
        partial = {HeaderKey.IS_PARTIAL: "true"} if log.columns != FIELDS else {}
        fields = ",".join(f'{{"name":"{name}","type":"string"}}' for name in ("id", "ts", *log.columns))
        schema = f'{{"type":"record","name":"r","fields":[{fields}]}}'
        found.append(
            frame_block(
                BlockType.PARQUET_DATA, {**headers, HeaderKey.SCHEMA: schema, **partial}, sink.getvalue()
            )
        )
    pairs = [(key, ts if mode is EVENT else None) for key, ts in log.deletes.items()]
    for content in delete_block_contents(deletes_of(pairs), "eu", ORDERING if mode is EVENT else None):
        found.append(frame_block(BlockType.DELETE, {**headers, HeaderKey.SCHEMA: SCHEMA.avro_json}, content))
    return b"".join(found)


def stored(
    storage: InMemoryStorage, base: Log | None, logs: list[tuple[int, Log]], mode: MergeMode
) -> FileSlice:
    base_name = None
    if base is not None:
        base_name = f"{FILE_ID}_0-0-0_{instant(0)}.parquet"
        storage.create(f"eu/{base_name}", write_base_file(table_of(base.rows, FIELDS, 0), SCHEMA))
    names = []
    for number, log in logs:
        names.append(f".{FILE_ID}_{instant(number)}.log.1_0-0-0")
        storage.create(f"eu/{names[-1]}", blocks(log, number, mode))
        check_log_blocks(storage, f"eu/{names[-1]}", "ts" if mode is EVENT else None)
    return FileSlice("eu", FILE_ID, base_name, instant(0), tuple(names))


Version = tuple[int | None, Values | None]
"""(ordering value, or None: a delete without one; columns, or None: deleted)."""


def merged(old: Version | None, new: Version, mode: MergeMode) -> Version:
    """Two versions of a key, as Hudi merges them one after the other."""
    if old is None:
        return new
    newer = mode is COMMIT or new[0] is None or old[0] is None or new[0] >= old[0]
    if newer:
        return (new[0], {**(old[1] or {}), **new[1]} if new[1] is not None else None)
    if old[1] is not None and new[1] is not None:
        return (old[0], {**new[1], **old[1]})
    return old


def model(base: Log | None, logs: list[Log], mode: MergeMode) -> dict[str, Values]:
    state: dict[str, Version] = {}
    for log in logs:
        for key, (ts, values) in log.rows.items():
            state[key] = merged(state.get(key), (ts, {name: values[name] for name in log.columns}), mode)
        for key, at in log.deletes.items():
            state[key] = merged(state.get(key), (at if mode is EVENT else None, None), mode)
    live: dict[str, Values] = {} if base is None else {key: values for key, (_, values) in base.rows.items()}
    for key, (ordering, merged_values) in state.items():
        stands = base.rows.get(key) if base is not None else None
        if mode is EVENT and stands is not None and ordering is not None and stands[0] > ordering:
            continue
        live.pop(key, None)
        if merged_values is not None:
            live[key] = {**(stands[1] if stands is not None else {}), **merged_values}
    return live


def check(base: Log | None, logs: list[tuple[int, Log]], mode: MergeMode, used: list[Log]) -> None:
    storage = InMemoryStorage()
    file_slice = stored(storage, base, logs, mode)
    ordering = ORDERING if mode is EVENT else None
    expected = model(base, used, mode)
    rows = read_slice(storage, file_slice, SCHEMA, mode, ordering).to_pylist()
    assert len({row["id"] for row in rows}) == len(rows)
    assert {
        row["id"]: {name: row[name] for name in FIELDS if row[name] is not None} for row in rows
    } == expected
    keys = sorted({key for log in [*used, base or Log()] for key in (*log.rows, *log.deletes)})
    found = slice_ordering(
        storage, file_slice, SCHEMA, pa.array(keys), mode, ordering, SliceOrderingCache(1 << 20)
    )
    assert {
        key
        for key, gone, known in zip(keys, found.is_deleted, found.found, strict=True)
        if known and not gone
    } == set(expected)
    reader = KeyReader(storage, SCHEMA, mode, ordering, 1 << 20)
    for key in keys:
        row = reader.versions(file_slice, key).merged
        assert (
            {name: row[name] for name in FIELDS if row[name] is not None} if row else None
        ) == expected.get(key)


KEYS = st.sampled_from([f"k{number}" for number in range(4)])
TIMES = st.integers(min_value=-2, max_value=4)


@st.composite
def slices(draw: st.DrawFn) -> tuple[Log | None, list[Log]]:
    numbers = iter(range(10_000))

    def rows(keys: list[str]) -> dict[str, tuple[int, Values]]:
        return {key: (draw(TIMES), {name: f"{name}{next(numbers)}" for name in FIELDS}) for key in keys}

    base = Log(rows=rows(draw(st.lists(KEYS, unique=True)))) if draw(st.booleans()) else None
    logs = []
    for _ in range(draw(st.integers(1, 4))):
        keys = draw(st.lists(KEYS, unique=True, min_size=1))
        split = draw(st.integers(0, len(keys)))
        columns = draw(st.sampled_from([("a",), ("b",), FIELDS]))
        deletes = {key: draw(st.one_of(st.none(), TIMES)) for key in keys[split:]}
        logs.append(Log(columns, rows(keys[:split]), deletes))
    return base, logs


@settings(max_examples=80, deadline=None)
@given(slices(), st.sampled_from([EVENT, COMMIT]))
def test_rows_with_some_columns_are_filled_up_as_the_model_says(
    made: tuple[Log | None, list[Log]], mode: MergeMode
) -> None:
    base, logs = made
    check(base, list(enumerate(logs, 1)), mode, logs)


def row(key: str, ts: int, value: str) -> dict[str, tuple[int, Values]]:
    return {key: (ts, {"a": value, "b": value})}


@pytest.mark.parametrize("mode", [EVENT, COMMIT])
def test_a_folded_log_file_stands_in_the_place_of_its_originals(mode: MergeMode) -> None:
    """4 folds 1 and 2, and was made after 3 had deleted the key: the key stays deleted."""
    first, second, third = Log(rows=row("k", 1, "x")), Log(rows=row("k", 2, "y")), Log(deletes={"k": None})
    folded = Log(rows=row("k", 2, "y"), folds=f"{instant(1)},{instant(2)}")
    logs = [(1, first), (2, second), (3, third), (4, folded)]
    check(Log(rows=row("j", 1, "base")), logs, mode, [folded, third])


@pytest.mark.parametrize("mode", [EVENT, COMMIT])
def test_a_folded_log_file_without_its_originals_is_not_used(mode: MergeMode) -> None:
    """A compaction that was planned meanwhile has merged them, and what was deleted since stays deleted."""
    deleted = Log(deletes={"k": None})
    folded = Log(rows=row("k", 2, "y"), folds=f"{instant(1)},{instant(2)}")
    check(Log(rows=row("k", 2, "y")), [(5, deleted), (6, folded)], mode, [deleted])


def test_the_example_of_the_module() -> None:
    base = Log(rows={"k": (10, {"a": "a", "b": "1"})})
    logs = [Log(("b",), {"k": (30, {"b": "3"})}), Log(("a",), {"k": (20, {"a": "c"})})]
    assert model(base, logs, EVENT) == {"k": {"a": "c", "b": "3"}}
    check(base, list(enumerate(logs, 1)), EVENT, logs)


def test_log_files_that_cannot_be_read_are_named_and_each_is_looked_at_once() -> None:
    class Counting(InMemoryStorage):
        """Counts the files that are opened."""

        def __init__(self) -> None:
            super().__init__()
            self.opened: list[str] = []

        def open_input(self, path: str) -> pa.NativeFile:
            self.opened.append(path)
            return super().open_input(path)

    storage = Counting()
    good = stored(storage, None, [(1, Log(rows=row("k", 1, "x"))), (2, Log(deletes={"k": 3}))], EVENT)
    storage.opened.clear()
    logs = ReadableLogs(storage, "ts")

    def sizes(partition: str) -> dict[str, int]:
        return {info.name: info.size for info in storage.list(partition)}

    logs.check([good], sizes)
    logs.check([good], sizes)
    assert storage.opened == [f"eu/{name}" for name in good.log_files]
    foreign = f".{FILE_ID}_{instant(3)}.log.1_0-0-0"
    storage.create(
        f"eu/{foreign}", frame_block(BlockType.CDC_DATA, {HeaderKey.INSTANT_TIME: instant(3)}, b"")
    )
    more = replace(good, log_files=(*good.log_files, foreign))
    for _ in range(2):  # it is no less unreadable the second time
        with pytest.raises(UnsupportedTableError, match=rf"{instant(3)}.* holds a CDC_DATA block"):
            logs.check([more], sizes)
    storage.delete(f"eu/{foreign}")
    logs.check([more], sizes)
