"""Another writer changes the table's schema or properties: its columns and values stay, or nothing is
written."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.simulation.commit_path import CommitPath
from tests.simulation.other_engine import OtherEngine, list_data_files
from tests.simulation.scripted_epochs import (
    EXPECTED_INDEX,
    GROUP_A,
    check_end,
    first_epoch,
    row,
    second_epoch,
)
from tests.simulation.scripted_tagger import SCHEMA, TABLE
from tests.simulation.test_other_engines import BOTH_TYPES, tag_anew
from tidemark.epoch_protocol.batches import DataOp
from tidemark.hudi_format.file_group.slice_reader import read_slice
from tidemark.hudi_format.index_definitions import COLUMN_STATS, read_index_definitions, stats_columns
from tidemark.hudi_format.metadata_table.index_life import folder_path, folder_properties
from tidemark.hudi_format.metadata_table.own_stats import kept_stats_columns, known_types
from tidemark.hudi_format.ordering import table_ordering
from tidemark.hudi_format.properties import format_properties
from tidemark.hudi_format.schema import OPERATION_FIELD, TableSchema, cast_rows
from tidemark.hudi_format.table_config import (
    TableType,
    read_table_config,
    update_properties,
    write_properties,
)
from tidemark.hudi_format.table_keys import CREATE_SCHEMA
from tidemark.hudi_format.table_schema import table_schema
from tidemark.hudi_format.table_view import TableView
from tidemark.hudi_format.timeline import load_timeline
from tidemark.table_verification.findings import Kind
from tidemark.table_verification.verify import verify_table

# The column of another writer stands in the middle, as ALTER TABLE ADD COLUMNS puts it before the partition.
WIDER = TableSchema.from_arrow(
    TABLE,
    pa.schema(
        [
            ("id", pa.string()),
            ("extra", pa.string()),
            ("day", pa.string()),
            ("ts", pa.int64()),
            ("v", pa.int64()),
        ]
    ),
)


def started(folder: Path, table_type: TableType) -> tuple[CommitPath, OtherEngine]:
    path = CommitPath(folder, table_type, ordered=True)
    first_epoch(path)
    path.run_until_idle()
    return path, OtherEngine(path.storage, path.clock, path.action)


def end_second_epoch(path: CommitPath) -> None:
    second_epoch(path)
    tag_anew(path, 1)
    path.run_until_idle()


def with_extra(rows: pa.Table) -> pa.Table:
    values = [f"theirs of {key}" for key in rows.column("id").to_pylist()]
    return rows.append_column("extra", pa.array(values, pa.string()))


def live(path: CommitPath, *columns: str) -> dict[str, tuple[object, ...]]:
    """Key to the values of these columns, by the table's own schema."""
    storage, timeline = path.storage, load_timeline(path.storage)
    config = read_table_config(storage)
    schema = table_schema(storage, config, timeline)
    assert schema is not None
    mode, ordering = table_ordering(config, schema)
    found = {}
    for each in TableView.of(storage, timeline).slices(list_data_files(storage)):
        for one in read_slice(storage, each, schema, mode, ordering).to_pylist():
            found[one["id"]] = tuple(one[name] for name in columns)
    return found


def assert_halts_and_writes_nothing(path: CommitPath, says: str) -> None:
    second_epoch(path)
    path.step_coordinator()
    assert path.coordinator is not None
    before = path.files()
    for _ in range(8):
        path.step()
        if path.state().generation and not path.state().tagged:
            path.tagger.claim_anew(path.state())
            second_epoch(path)
    halted = path.coordinator.seen.halted or ""
    assert says in halted
    assert "epoch retry 2" in halted
    assert path.state().planned is None
    changed = {name for name in path.files().items() ^ before.items() if "/.aux/" not in name[0]}
    assert changed == set()


@BOTH_TYPES
def test_a_column_of_another_writer_keeps_its_values_in_rows_that_we_do_not_touch(
    tmp_path: Path, table_type: TableType
) -> None:
    path, other = started(tmp_path, table_type)
    other.rewrite(WIDER, with_extra)
    end_second_epoch(path)
    # `a` was updated and `e` inserted by us, who know no value of the column; `c` lies in another file group.
    assert live(path, "v", "extra") == {"a": (3, None), "e": (3, None), "c": (1, "theirs of c")}
    schema = table_schema(path.storage, read_table_config(path.storage), load_timeline(path.storage))
    assert schema is not None
    assert schema.arrow.names == WIDER.arrow.names
    assert verify_table(path.storage, lambda _: None).findings.counts == {}


@BOTH_TYPES
def test_rows_of_a_rewritten_file_keep_the_column(tmp_path: Path, table_type: TableType) -> None:
    """`b` shares its file group with `a`, which we update."""
    path, other = started(tmp_path, table_type)
    other.rewrite(WIDER, with_extra)
    update = [(row("a", 2, 2), DataOp.UPDATE, GROUP_A)]
    path.tag(update)
    path.step_coordinator()
    for _ in range(10):
        path.step()
        if path.state().generation == 1:
            break
    path.tagger.claim_anew(path.state())
    path.tag(update)
    path.run_until_idle()
    assert live(path, "v", "extra") == {"a": (2, None), "b": (1, "theirs of b"), "c": (1, "theirs of c")}


@BOTH_TYPES
@pytest.mark.parametrize("coordinator", ["lives", "dies"])
def test_an_empty_commit_of_alter_table_is_carried_on(
    tmp_path: Path, table_type: TableType, coordinator: str
) -> None:
    path, other = started(tmp_path, table_type)
    other.commit(WIDER)
    if coordinator == "dies":
        path.crash()
    end_second_epoch(path)
    check_end(path)
    schema = table_schema(path.storage, read_table_config(path.storage), load_timeline(path.storage))
    assert schema is not None
    assert "extra" in schema.arrow.names
    assert path.record_index() == EXPECTED_INDEX


@BOTH_TYPES
def test_a_type_that_another_writer_widened_stays_wide(tmp_path: Path, table_type: TableType) -> None:
    path, other = started(tmp_path, table_type)
    text = pa.schema([field.with_type(pa.string()) if field.name == "v" else field for field in SCHEMA.arrow])
    wide = TableSchema.from_arrow(TABLE, text)
    other.rewrite(wide, lambda rows: cast_rows(rows, wide.arrow_with_meta))
    end_second_epoch(path)
    assert live(path, "v") == {"a": ("3",), "e": ("3",), "c": ("1",)}


@BOTH_TYPES
@pytest.mark.parametrize(
    ("column", "kind", "says"),
    [("id", pa.binary(), "id, a key"), ("v", pa.bool_(), "column v"), ("extra", None, "schema on read")],
)
def test_a_change_that_cannot_be_carried_stops_by_name_before_anything_is_written(
    tmp_path: Path, table_type: TableType, column: str, kind: pa.DataType | None, says: str
) -> None:
    path, other = started(tmp_path, table_type)
    fields = [field.with_type(kind) if kind and field.name == column else field for field in SCHEMA.arrow]
    extra = {} if kind is not None else {"latest_schema": "{}"}
    other.commit(TableSchema.from_arrow(TABLE, pa.schema(fields)), extra)
    assert_halts_and_writes_nothing(path, says)


@BOTH_TYPES
@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        (pa.date32(), pa.timestamp("us", "UTC")),
        (pa.date32(), pa.string()),
        (pa.date32(), pa.int64()),
        (pa.int32(), pa.date32()),
        (pa.timestamp("ms", "UTC"), pa.timestamp("us", "UTC")),
        (pa.timestamp("us", "UTC"), pa.timestamp("us")),
        (pa.timestamp("us", "UTC"), pa.string()),
        (pa.timestamp("us", "UTC"), pa.int64()),
        (pa.int64(), pa.timestamp("us", "UTC")),
        (pa.decimal128(10, 2), pa.decimal128(12, 2)),
    ],
    ids=str,
)
def test_a_type_that_a_column_with_stats_cannot_get_stops_before_anything_is_written(
    tmp_path: Path, table_type: TableType, was: pa.DataType, becomes: pa.DataType
) -> None:
    """Its bounds are numbers: days of a date that are read as microseconds of a timestamp leave files out.

    Of these Hudi on Spark lets a writer make a timestamp of a long, and widen a decimal.
    """
    of = SCHEMA.arrow.get_field_index("v")
    schemas = [
        TableSchema.from_arrow(TABLE, SCHEMA.arrow.set(of, pa.field("v", kind))) for kind in (was, becomes)
    ]
    path = CommitPath(tmp_path, table_type, ordered=True, schema=schemas[0], stats=["id", "v"])
    first_epoch(path)
    path.run_until_idle()
    assert kept_stats_columns(path.storage, read_table_config(path.storage)) == ["id", "v"]
    OtherEngine(path.storage, path.clock, path.action).commit(schemas[1])
    assert_halts_and_writes_nothing(path, f"column v: its type changed from {becomes} to {was}")


@BOTH_TYPES
@pytest.mark.parametrize("coordinator", ["lives", "dies", "is away for long"])
@pytest.mark.parametrize(
    ("becomes", "stays"), [(pa.string(), False), (pa.float64(), True)], ids=["string", "double"]
)
def test_column_stats_of_numbers_that_became_texts_are_taken_out(
    tmp_path: Path, table_type: TableType, coordinator: str, becomes: pa.DataType, stays: bool
) -> None:
    """Hudi compares the bounds of older files as texts then: of 5 to 50 it believes that it has no "10"."""
    path = CommitPath(tmp_path, table_type, ordered=True, stats=["id", "v"])
    first_epoch(path)
    path.run_until_idle()
    of = SCHEMA.arrow.get_field_index("v")
    wide = TableSchema.from_arrow(TABLE, SCHEMA.arrow.set(of, pa.field("v", becomes)))
    if coordinator != "lives":
        path.crash()
    other = OtherEngine(path.storage, path.clock, path.action)
    indexed = stats_columns(read_index_definitions(path.storage))
    other.rewrite(wide, lambda rows: cast_rows(rows, wide.arrow_with_meta), stats_of=indexed)
    if coordinator == "is away for long":
        other.commit(wide)
        other.archive()
    end_second_epoch(path)
    kept = kept_stats_columns(path.storage, read_table_config(path.storage))
    assert kept == (["id", "v"] if stays else [])
    assert path.context is not None
    taken = path.context.taken_out
    assert (taken is None) is stays
    assert taken is None or "made texts of v" in taken.reason


def of_an_earlier_version(path: CommitPath) -> None:
    """Takes the types out that this version writes beside the column stats."""
    assert known_types(path.storage) is not None
    names = folder_properties(path.storage, COLUMN_STATS)
    del names["tidemark.types"]
    path.storage.replace(folder_path(COLUMN_STATS), format_properties(names, "of before").encode())
    assert known_types(path.storage) is None


def without_create_schema(path: CommitPath) -> None:
    """As tables of which nobody wrote down with which schema they were made."""
    made = read_table_config(path.storage).properties
    write_properties(path.storage, {key: made[key] for key in made if key != CREATE_SCHEMA})


@BOTH_TYPES
@pytest.mark.parametrize(
    ("becomes", "stays"), [(pa.string(), False), (pa.int64(), True)], ids=["string", "long"]
)
def test_types_that_no_folder_says_are_those_of_our_last_commit(
    tmp_path: Path, table_type: TableType, becomes: pa.DataType, stays: bool
) -> None:
    """The version that made the stats wrote no types down; our commits are archived, and theirs too."""
    path = CommitPath(tmp_path, table_type, ordered=True, stats=["id", "v"])
    first_epoch(path)
    path.run_until_idle()
    of_an_earlier_version(path)
    without_create_schema(path)
    path.crash()
    changed = TableSchema.from_arrow(
        TABLE, SCHEMA.arrow.set(SCHEMA.arrow.get_field_index("v"), pa.field("v", becomes))
    )
    other = OtherEngine(path.storage, path.clock, path.action)
    for _ in range(2):
        other.commit(changed)
    other.archive()
    end_second_epoch(path)
    assert kept_stats_columns(path.storage, read_table_config(path.storage)) == (["id", "v"] if stays else [])
    assert known_types(path.storage) == ({"id": "STRING", "v": "LONG"} if stays else None)
    assert path.context is not None
    taken = path.context.taken_out
    assert (taken is None) is stays
    assert taken is None or taken.reason.endswith(" made texts of v")


@BOTH_TYPES
@pytest.mark.parametrize(
    ("stats", "told_by", "stays"),
    [
        (["id", "v"], "nothing", True),
        (["id", "note"], "nothing", False),
        (["id", "note"], "create schema", True),
        (["id", "note"], "folder", True),
    ],
)
def test_texts_that_nothing_tells_the_types_of_before_count_as_made_so(
    tmp_path: Path, table_type: TableType, stats: list[str], told_by: str, stays: bool
) -> None:
    """No commit that was seen states a schema, and the folder says no types. A key cannot have become one."""
    with_note = TableSchema.from_arrow(TABLE, pa.schema([*SCHEMA.arrow, ("note", pa.string())]))
    path = CommitPath(tmp_path, table_type, ordered=True, schema=with_note, stats=stats)
    if told_by != "folder":
        of_an_earlier_version(path)
    if told_by != "create schema":
        without_create_schema(path)
    path.step_coordinator()
    OtherEngine(path.storage, path.clock, path.action).commit(with_note)
    first_epoch(path)
    for _ in range(10):
        path.step()
        if path.state().generation:
            break
    path.tagger.claim_anew(path.state())
    first_epoch(path)
    path.run_until_idle()
    kept = kept_stats_columns(path.storage, read_table_config(path.storage))
    assert kept == (stats if stays else [])
    assert path.context is not None
    taken = path.context.taken_out
    assert (taken is None) is stays
    assert taken is None or "may have made texts of note" in taken.reason


def test_a_property_that_appears_while_we_run_stops_by_name(tmp_path: Path) -> None:
    path, _ = started(tmp_path, TableType.MERGE_ON_READ)
    update_properties(path.storage, {"hoodie.keygen.timebased.timestamp.type": "UNIX_TIMESTAMP"})
    assert_halts_and_writes_nothing(path, "hoodie.keygen.timebased.timestamp.type is 'UNIX_TIMESTAMP'")


def test_the_operation_column_of_another_writers_base_files_is_kept(tmp_path: Path) -> None:
    path, other = started(tmp_path, TableType.COPY_ON_WRITE)

    def with_operation(rows: pa.Table) -> pa.Table:
        return rows.add_column(5, OPERATION_FIELD, pa.array(["I"] * rows.num_rows, pa.string()))

    other.rewrite(SCHEMA, with_operation)
    end_second_epoch(path)
    files = [name for name in path.files() if name.startswith("d1/") and name.endswith(".parquet")]
    newest = pq.read_table(path.storage.open_input(max(files, key=lambda name: name.rpartition("_")[2])))
    assert dict(zip(*(newest.column(name).to_pylist() for name in ("id", OPERATION_FIELD)), strict=True)) == {
        "a": None,
        "e": None,
    }


def test_verify_names_columns_that_a_commit_lost(tmp_path: Path) -> None:
    path, other = started(tmp_path, TableType.MERGE_ON_READ)
    other.rewrite(WIDER, with_extra)
    other.commit(SCHEMA)
    counts = verify_table(path.storage, lambda _: None).findings.counts
    assert counts[Kind.COLUMN_NOT_IN_SCHEMA] == 2
