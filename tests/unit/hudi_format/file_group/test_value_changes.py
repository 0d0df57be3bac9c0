"""What a commit changes in a column's values, against a model that looks at one record after the other."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testing.memory_storage import InMemoryStorage
from tests.unit.hudi_format.file_group.test_slice_reader import (
    COMMIT,
    EVENT,
    FILE_ID,
    KEYS,
    ORDERING,
    SCHEMA,
    TIMES,
    Log,
    Row,
    deletes_of,
    instant,
    model,
    rows_table,
    stored_slice,
)
from tidemark.hudi_format.file_group.base_file import attach_meta_columns
from tidemark.hudi_format.file_group.merge import merge_upserts
from tidemark.hudi_format.file_group.value_changes import (
    RowsChanged,
    SliceMerge,
    ValueChanges,
    rows_merged,
    values_changed,
)
from tidemark.hudi_format.schema import cast_rows
from tidemark.hudi_format.table_config import MergeMode

# Few of them, so that many updates leave the value as it is, or bring an old one back. `NULL` stands for
# null, because the model knows None as "deleted".
NULL = "null"
VALUES = st.sampled_from([NULL, "", "x", "y"])
Pairs = set[tuple[str, str]]


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Row] | None, list[Log], Log]:
    """Base rows, log files, and what a commit brings."""

    def row(key: str) -> Row:
        return key, draw(TIMES), draw(VALUES), draw(st.integers(0, 5)) == 0

    def log(keys: list[str]) -> Log:
        split = draw(st.integers(0, len(keys)))
        deletes = [(key, draw(st.one_of(st.none(), TIMES))) for key in keys[split:]]
        return Log([row(key) for key in keys[:split]], deletes)

    keys = st.lists(KEYS, unique=True, min_size=1)
    base = [(*row(key)[:3], False) for key in draw(keys)] if draw(st.booleans()) else None
    return base, [log(draw(keys)) for _ in range(draw(st.integers(0, 2)))], log(draw(keys))


def nulled(rows: list[Row]) -> list[Row]:
    return [(key, ts, None if value == NULL else value, gone) for key, ts, value, gone in rows]  # type: ignore[misc]


def pairs_in(changes: ValueChanges) -> tuple[Pairs, Pairs]:
    puts, deletes = (
        list(zip(pairs.keys.to_pylist(), pc.fill_null(pairs.values, NULL).to_pylist(), strict=True))
        for pairs in (changes.puts, changes.deletes)
    )
    assert len(set(puts)) == len(puts)
    assert len(set(deletes)) == len(deletes)
    return set(puts), set(deletes)


def expected(base: list[Row] | None, logs: list[Log], own: Log, mode: MergeMode) -> tuple[Pairs, Pairs]:
    (before, _), (after, _) = model(base, logs, mode), model(base, [*logs, own], mode)
    return set(after.items()) - set(before.items()), set(before.items()) - set(after.items())


def logged(base: list[Row] | None, logs: list[Log], own: Log, mode: MergeMode) -> RowsChanged:
    storage = InMemoryStorage()
    named = [Log(nulled(log.rows), log.deletes) for log in logs]
    file_slice = stored_slice(storage, None if base is None else nulled(base), named, mode)
    merge = SliceMerge(storage, SCHEMA, mode, ORDERING if mode is EVENT else None, ["v"])
    deletes = deletes_of(own.deletes if mode is EVENT else [(key, None) for key, _ in own.deletes])
    rows = rows_table(nulled(own.rows), 9, FILE_ID) if own.rows else None
    return merge.rows_logged(file_slice, rows, deletes)


@settings(max_examples=60, deadline=None)
@given(histories(), st.sampled_from([EVENT, COMMIT]))
def test_a_log_file_changes_what_the_model_says(
    made: tuple[list[Row] | None, list[Log], Log], mode: MergeMode
) -> None:
    assert pairs_in(values_changed([logged(*made, mode)], "v")) == expected(*made, mode)


@settings(max_examples=40, deadline=None)
@given(histories(), st.sampled_from([EVENT, COMMIT]))
def test_a_rewritten_base_file_changes_what_the_model_says(
    made: tuple[list[Row] | None, list[Log], Log], mode: MergeMode
) -> None:
    base, _, own = made
    existing = rows_table(nulled(base or []), 0, "f")
    upserts = cast_rows(rows_table(nulled(own.rows), 9, "g"), existing.schema)
    deletes = deletes_of(own.deletes if mode is EVENT else [(key, None) for key, _ in own.deletes])
    merged = merge_upserts(existing, upserts, deletes, mode, ORDERING if mode is EVENT else None, "g")
    keys = pa.concat_arrays([pc.cast(upserts.column("id").combine_chunks(), pa.string()), deletes.keys])
    changed = rows_merged(existing, merged.rows, keys, ["v"])
    assert pairs_in(values_changed([changed], "v")) == expected(base, [], own, mode)
    assert changed.after.column_names == ["_hoodie_record_key", "v"]


BASE: list[Row] = [("k", 10, "old", False)]


@pytest.mark.parametrize(
    ("own", "puts", "deletes"),
    [
        (Log([("k", 11, "new", False)]), {("k", "new")}, {("k", "old")}),
        (Log([("k", 11, "old", False)]), set(), set()),
        (Log([("k", 9, "late", False)]), set(), set()),
        (Log(deletes=[("k", 9)]), set(), set()),
        (Log(deletes=[("k", 10)]), set(), {("k", "old")}),
        (Log(deletes=[("gone", 10)]), set(), set()),
        (Log([("n", 1, NULL, False)]), {("n", NULL)}, set()),
    ],
    ids=["update", "same value", "late row", "late delete", "delete", "unknown delete", "insert of null"],
)
def test_only_what_readers_see_is_changed(own: Log, puts: Pairs, deletes: Pairs) -> None:
    assert pairs_in(values_changed([logged(BASE, [], own, EVENT)], "v")) == (puts, deletes)


def test_a_value_that_comes_back_within_the_logs_is_no_change() -> None:
    """old -> new -> old, where `new` is in an earlier log: it is the slice before the commit that counts."""
    there = [Log([("k", 11, "new", False)])]
    assert pairs_in(values_changed([logged(BASE, there, Log([("k", 12, "old", False)]), EVENT)], "v")) == (
        {("k", "old")},
        {("k", "new")},
    )


def test_a_column_that_older_files_lack_was_null_there() -> None:
    storage = InMemoryStorage()
    file_slice = stored_slice(storage, BASE, [], EVENT)
    wider = type(SCHEMA).from_arrow("t", SCHEMA.arrow.append(pa.field("day", pa.date32())))
    user = pa.table([["k"], [11], ["old"], [False], [7]], schema=wider.arrow)
    rows = attach_meta_columns(user, user.column("id"), "eu", instant(9), 0, FILE_ID)
    changed = SliceMerge(storage, wider, EVENT, ORDERING, ["v", "day"]).rows_logged(
        file_slice, rows, deletes_of([])
    )
    assert values_changed([changed], "v").puts.values.to_pylist() == []
    day = values_changed([changed], "day")
    assert (day.deletes.values.null_count, day.puts.values.cast(pa.int32()).to_pylist()) == (1, [7])


def test_a_key_with_two_rows_has_two_pairs() -> None:
    """After damage. A delete then takes away both, and an update all but its own value."""
    rows = pa.table({"_hoodie_record_key": ["a", "a"], "v": ["x", "y"]})
    changed = RowsChanged(rows, rows.slice(1, 1))
    assert pairs_in(values_changed([changed], "v")) == (set(), {("a", "x")})
