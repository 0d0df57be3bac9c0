"""COPY_ON_WRITE merging against a model that handles one change after the other, and its counts."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.hudi_format.errors import HudiFormatError
from tidemark.hudi_format.file_group.base_file import attach_meta_columns
from tidemark.hudi_format.file_group.changes import Changes, Deletes
from tidemark.hudi_format.file_group.merge import DuplicateKeyError, MergeResult, merge_upserts
from tidemark.hudi_format.file_group.write_stats import (
    log_append_stat,
    new_base_file_stat,
    rewritten_base_file_stat,
)
from tidemark.hudi_format.ordering import NO_ORDERING, OrderingError, OrderingField
from tidemark.hudi_format.schema import META_COLUMNS, TableSchema
from tidemark.hudi_format.table_config import MergeMode

SCHEMA = TableSchema.from_arrow(
    "t",
    pa.schema(
        [
            pa.field("id", pa.string()),
            pa.field("ts", pa.float64()),
            pa.field("v", pa.int64()),
            pa.field("_hoodie_is_deleted", pa.bool_()),
        ]
    ),
)
ORDERING = OrderingField.of(SCHEMA, "ts")
EVENT, COMMIT = MergeMode.EVENT_TIME_ORDERING, MergeMode.COMMIT_TIME_ORDERING
OLD, NEW, NEW_FILE = "20260101000000000", "20260101000001000", "f-0_0-0-0_20260101000001000.parquet"

KEYS = st.sampled_from([f"k{number}" for number in range(8)])
TIMES = st.sampled_from([-1.5, -0.0, 0.0, 1.0, 2.5])


def rows_of(rows: list[tuple[str, float | None, int, bool | None]], instant: str) -> pa.Table:
    columns = [list(column) for column in zip(*rows, strict=True)] if rows else [[]] * 4
    user = pa.table(columns, schema=SCHEMA.arrow)
    return attach_meta_columns(user, user.column("id"), "eu", instant, 3, f"f-0_0-0-0_{instant}.parquet")


def deletes_of(pairs: list[tuple[str, float | None]], mode: MergeMode) -> Deletes:
    keys = pa.array([key for key, _ in pairs], pa.string())
    if mode is COMMIT:
        return Deletes.without_ordering(keys)
    values = pa.array([value for _, value in pairs], pa.float64())
    ordering = np.where(values.is_null(), NO_ORDERING, ORDERING.to_int64(values.fill_null(0.0)))
    return Deletes.with_ordering(keys, ordering)


def not_older(new: float, stored: float) -> bool:
    """Java's Double.compare(new, stored) >= 0 for numbers: -0.0 is below 0.0."""
    return (new, np.copysign(1, new)) >= (stored, np.copysign(1, stored))


@st.composite
def batches(
    draw: st.DrawFn,
) -> tuple[dict[str, tuple[float, int]], list[tuple[str, float, int, bool]], list[tuple[str, float | None]]]:
    existing = {key: (draw(TIMES), number) for number, key in enumerate(draw(st.lists(KEYS, unique=True)))}
    changed = draw(st.lists(KEYS, unique=True))
    split = draw(st.integers(0, len(changed)))
    upserts = [
        (key, draw(TIMES), 100 + number, draw(st.booleans())) for number, key in enumerate(changed[:split])
    ]
    return existing, upserts, [(key, draw(st.none() | TIMES)) for key in changed[split:]]


@settings(max_examples=200, deadline=None)
@given(batches(), st.sampled_from([EVENT, COMMIT]))
def test_merge_is_what_one_change_after_the_other_gives(made, mode: MergeMode) -> None:
    existing, upserts, deletes = made
    expected = {key: value for key, (_, value) in existing.items()}
    counts = dict.fromkeys(("updates", "inserts", "deletes", "stale", "unknown_deletes"), 0)
    changes = [(key, ts, None if gone else value) for key, ts, value, gone in upserts]
    changes += [(key, ts, None) for key, ts in deletes]
    for key, ts, value in changes:
        known = key in existing
        if known and mode is EVENT and ts is not None and not not_older(ts, existing[key][0]):
            counts["stale"] += 1
        elif value is not None:
            expected[key] = value
            counts["updates" if known else "inserts"] += 1
        else:
            expected.pop(key, None)
            counts["deletes" if known else "unknown_deletes"] += 1

    result = merge_upserts(
        rows_of([(key, ts, value, None) for key, (ts, value) in existing.items()], OLD),
        rows_of(upserts, NEW),
        deletes_of(deletes, mode),
        mode,
        ORDERING if mode is EVENT else None,
        NEW_FILE,
    )
    rows = result.rows.to_pylist()
    assert {row["id"]: row["v"] for row in rows} == expected
    assert len(rows) == len(expected)
    assert {name: getattr(result, name) for name in counts} == counts
    assert int((~result.applied_upserts).sum() + (~result.applied_deletes).sum()) == counts["stale"]
    for row in rows:
        assert row["_hoodie_file_name"] == NEW_FILE
        assert row["_hoodie_commit_time"] == (NEW if row["v"] >= 100 else OLD)
        assert row["_hoodie_commit_seqno"].startswith(f"{row['_hoodie_commit_time']}_3_")


def merge(existing: pa.Table, upserts: pa.Table, deletes: Deletes, mode: MergeMode = EVENT) -> MergeResult:
    return merge_upserts(existing, upserts, deletes, mode, ORDERING if mode is EVENT else None, NEW_FILE)


def test_ties_go_to_the_newer_record_deletes_included() -> None:
    existing = rows_of([("a", 1.0, 1, None), ("b", 1.0, 2, None)], OLD)
    result = merge(existing, rows_of([("a", 1.0, 100, None)], NEW), deletes_of([("b", 1.0)], EVENT))
    assert result.rows["v"].to_pylist() == [100]
    assert (result.updates, result.deletes, result.stale) == (1, 1, 0)


def test_key_twice_among_the_changes_is_refused() -> None:
    existing = rows_of([], OLD)
    with pytest.raises(DuplicateKeyError, match="2 changes"):
        merge(existing, rows_of([("a", 1.0, 1, None), ("a", 2.0, 2, None)], NEW), Deletes.none())
    with pytest.raises(DuplicateKeyError):
        merge(existing, rows_of([("a", 1.0, 1, None)], NEW), deletes_of([("a", 1.0)], EVENT))


def test_null_ordering_value_is_refused_in_upserts_and_oldest_in_stored_rows() -> None:
    with pytest.raises(OrderingError, match="field ts"):
        merge(rows_of([], OLD), rows_of([("a", None, 1, None)], NEW), Deletes.none())
    result = merge(
        rows_of([("a", None, 1, None)], OLD), rows_of([("a", -1e300, 2, None)], NEW), Deletes.none()
    )
    assert result.rows["v"].to_pylist() == [2]


def test_event_time_without_an_ordering_field_is_refused() -> None:
    with pytest.raises(HudiFormatError, match="ordering"):
        merge_upserts(
            rows_of([], OLD), rows_of([("a", 1.0, 1, None)], NEW), Deletes.none(), EVENT, None, NEW_FILE
        )


def test_merge_of_nothing_renames_the_file_only() -> None:
    existing = rows_of([("a", 1.0, 1, None)], OLD)
    result = merge(existing, rows_of([], NEW), Deletes.none())
    assert result.rows.drop_columns(["_hoodie_file_name"]).equals(
        existing.drop_columns(["_hoodie_file_name"])
    )
    assert result.rows["_hoodie_file_name"].to_pylist() == [NEW_FILE]


def test_deletes_check_their_lengths() -> None:
    with pytest.raises(ValueError, match="1 keys"):
        Deletes(pa.array(["a"]), np.zeros(2, np.int64), np.zeros(1, np.bool_))


def test_reduce_of_distinct_keys_is_the_changes_themselves() -> None:
    changes = Changes.of_deletes(deletes_of([("a", 1.0), ("b", None)], EVENT))
    assert changes.reduce(EVENT) is changes


def test_write_stats_hold_what_hudi_writes() -> None:
    new = new_base_file_stat("eu", "f-0", "f-0_0-0-0_1.parquet", 999, 7).to_avro()
    assert {
        key: new[key]
        for key in ("fileId", "path", "prevCommit", "numWrites", "numInserts", "fileSizeInBytes")
    } == {
        "fileId": "f-0",
        "path": "eu/f-0_0-0-0_1.parquet",
        "prevCommit": "null",
        "numWrites": 7,
        "numInserts": 7,
        "fileSizeInBytes": 999,
    }
    merged = merge(
        rows_of([("a", 1.0, 1, None), ("b", 1.0, 2, None), ("c", 1.0, 3, None)], OLD),
        rows_of([("a", 2.0, 100, None), ("n", 1.0, 101, None)], NEW),
        deletes_of([("b", 2.0)], EVENT),
    )
    old_file = f"f-0_0-0-0_{OLD}.parquet"
    cow = rewritten_base_file_stat("", "f-0", NEW_FILE, 5, old_file, merged).to_avro()
    assert (cow["path"], cow["prevCommit"], cow["prevBaseFile"]) == (NEW_FILE, OLD, old_file)
    assert (cow["numWrites"], cow["numUpdateWrites"], cow["numInserts"], cow["numDeletes"]) == (3, 1, 1, 1)
    log = log_append_stat(
        "eu", "f-0", ".f-0_2.log.1_0-0-0", 50, "2", old_file, updates=4, inserts=1, deletes=2
    ).to_avro()
    assert (log["path"], log["prevCommit"], log["baseFile"]) == ("eu/.f-0_2.log.1_0-0-0", "2", old_file)
    assert (log["logFiles"], log["logVersion"], log["logOffset"]) == ([".f-0_2.log.1_0-0-0"], 1, 0)
    assert (log["numWrites"], log["numUpdateWrites"], log["numInserts"], log["numDeletes"]) == (5, 4, 1, 2)
    with pytest.raises(HudiFormatError, match="no base file"):
        rewritten_base_file_stat("", "f-0", NEW_FILE, 5, "nonsense", merged)


def test_meta_columns_come_first_and_number_the_rows() -> None:
    rows = rows_of([("a", 1.0, 1, None), ("b", 1.0, 2, None)], OLD)
    assert rows.column_names[:5] == list(META_COLUMNS)
    again = attach_meta_columns(rows, rows.column("id"), "us", NEW, 0, "g", first_seqno=10)
    assert again.column_names == rows.column_names
    assert again["_hoodie_commit_seqno"].to_pylist() == [f"{NEW}_0_10", f"{NEW}_0_11"]
    assert again["_hoodie_partition_path"].to_pylist() == ["us", "us"]
