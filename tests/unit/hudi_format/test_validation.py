"""Which tables are served, and what each refusal tells the user to do."""

from __future__ import annotations

from typing import Any

import pytest

from testing.memory_storage import InMemoryStorage
from tests.unit.hudi_format.doubles import ManualClock
from tidemark.errors import ErrorKind
from tidemark.hudi_format.commit.create_table import create_table
from tidemark.hudi_format.commit.instants import create_inflight, create_requested
from tidemark.hudi_format.errors import FileMissingError, IndexUnfinishedError, UnsupportedTableError
from tidemark.hudi_format.file_group.names import LogFileName
from tidemark.hudi_format.index_definitions import (
    INDEX_DEFINITIONS_PATH,
    IndexKind,
    read_index_definitions,
    record_index_kind,
    write_index_definitions,
)
from tidemark.hudi_format.metadata_table.partitions.record_index import (
    RECORD_INDEX_FOLDER,
    record_index_file_id,
)
from tidemark.hudi_format.model import ShardId, instant_from_ms
from tidemark.hudi_format.publication.unfenced import Unfenced
from tidemark.hudi_format.table_config import (
    TableDefinition,
    TableType,
    read_table_config,
    update_properties,
)
from tidemark.hudi_format.table_repairs import drop_stats, pin_timezone
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, Action
from tidemark.hudi_format.validation import check_servable, check_still_servable

PARTITIONS = "hoodie.table.metadata.partitions"
INDEX_FILE = (
    f"{RECORD_INDEX_FOLDER}/{LogFileName(record_index_file_id(ShardId(0)), '00000000000000000', 1, '0-0-0')}"
)


def record_index_definition(is_partitioned: object) -> dict[str, Any]:
    """As Hudi 1.2.0 writes it."""
    return {
        "indexName": "record_index",
        "indexType": "record_index",
        "indexFunction": "",
        "sourceFields": [],
        "indexOptions": {"isPartitioned": is_partitioned},
        "version": "V1",
    }


@pytest.fixture
def table() -> InMemoryStorage:
    """A table that is served."""
    storage = InMemoryStorage()
    definition = TableDefinition(
        name="t",
        table_type=TableType.MERGE_ON_READ,
        record_key_fields=("id",),
        partition_fields=("p",),
        ordering_fields=("ts",),
    )
    create_table(storage, definition)
    write_index_definitions(storage, {"record_index": record_index_definition("false")})
    update_properties(storage, {PARTITIONS: "files,record_index"})
    storage.create(INDEX_FILE, b"")
    return storage


def test_a_plain_table_with_global_record_index_is_served(table: InMemoryStorage) -> None:
    assert check_servable(table).name == "t"


def test_an_index_that_is_listed_and_gone_is_refused(table: InMemoryStorage) -> None:
    """Also while the table is served; a folder without a file of the index only where it is opened."""
    table.delete(INDEX_FILE)
    table.create(f"{RECORD_INDEX_FOLDER}/.hoodie_partition_metadata", b"")
    check_still_servable(table)
    with pytest.raises(
        UnsupportedTableError, match=r"no shards.*has no file of it.*from a copy.*hudi-beside"
    ):
        check_servable(table)
    table.delete_tree(RECORD_INDEX_FOLDER)
    for check in (check_servable, check_still_servable):
        with pytest.raises(UnsupportedTableError, match=r"no shards.*record_index is gone.*hudi-beside"):
            check(table)


def test_no_table_is_missing_not_unsupported() -> None:
    with pytest.raises(FileMissingError):
        check_servable(InMemoryStorage())


REFUSALS = [
    ({"hoodie.table.version": "8"}, "hoodie.table.version is 8", "Upgrade"),
    ({"hoodie.timeline.layout.version": "1"}, "layout 1", "Upgrade"),
    ({"hoodie.timeline.path": "elsewhere"}, "other folders", "new table"),
    ({"hoodie.table.format": "iceberg"}, "hoodie.table.format", "new table"),
    ({"hoodie.bootstrap.base.path": "/x"}, "bootstrapped", "new table"),
    ({"hoodie.table.base.file.format": "ORC"}, "ORC", "new table"),
    ({"hoodie.populate.meta.fields": "false"}, "hoodie.populate.meta.fields", "new table"),
    ({"hoodie.datasource.write.drop.partition.columns": "true"}, "drop.partition.columns", "new table"),
    ({"hoodie.table.cdc.enabled": "true"}, "hoodie.table.cdc.enabled", "false"),
    ({"hoodie.table.timeline.timezone": "LOCAL"}, "timezone is LOCAL", "table adopt"),
    ({"hoodie.record.merge.mode": "CUSTOM", "hoodie.compaction.payload.class": "x.Y"}, "x.Y", "new table"),
    (
        {"hoodie.table.legacy.payload.class": "org.apache.hudi.common.model.AWSDmsAvroPayload"},
        "AWSDms",
        "new table",
    ),
    ({"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"}, "partially", "new table"),
    ({"hoodie.record.merge.property.hoodie.payload.delete.field": "op"}, "markers", "new table"),
    ({"hoodie.table.ordering.fields": "a,b"}, "a,b", "new table"),
    ({"hoodie.table.recordkey.fields": ""}, "hoodie.table.recordkey.fields", "new table"),
    ({"hoodie.table.keygenerator.type": "TIMESTAMP"}, "TIMESTAMP", "new table"),
    ({"hoodie.table.keygenerator.type": "NOVEL"}, "NOVEL", "new table"),
    ({"hoodie.table.partition.fields": "day:TIMESTAMP"}, "day:TIMESTAMP", "new table"),
    ({PARTITIONS: ""}, "no metadata table", "without rows"),
    ({PARTITIONS: "files"}, "no record level index", "without rows"),
    (
        {PARTITIONS: "files,record_index,column_stats,partition_stats"},
        "column_stats, partition_stats",
        "--drop-stats",
    ),
    ({PARTITIONS: "files,record_index,bloom_filters"}, "bloom_filters", "DROP INDEX"),
    ({PARTITIONS: "files,record_index,secondary_index_x"}, "secondary_index_x", "DROP INDEX"),
    ({PARTITIONS: "files,record_index,expr_index_x"}, "expr_index_x", "DROP INDEX"),
    ({f"{PARTITIONS}.inflight": "secondary_index_x"}, "being built", "Wait"),
]


@pytest.mark.parametrize(("changes", "reason", "remedy"), REFUSALS)
def test_what_is_not_served_is_refused_with_reason_and_remedy(
    table: InMemoryStorage, changes: dict[str, str], reason: str, remedy: str
) -> None:
    update_properties(table, changes)
    with pytest.raises(UnsupportedTableError) as refused:
        check_servable(table)
    assert refused.value.kind is ErrorKind.INVALID
    assert reason in refused.value.reason
    assert remedy in refused.value.remedy


def test_all_reasons_come_at_once(table: InMemoryStorage) -> None:
    changes = {
        "hoodie.table.version": "8",
        "hoodie.table.timeline.timezone": "LOCAL",
        "hoodie.record.merge.mode": "CUSTOM",
        "hoodie.table.keygenerator.type": "TIMESTAMP",
        "hoodie.table.of.a.later.version": "1",
        PARTITIONS: "files,record_index,column_stats,bloom_filters",
    }
    update_properties(table, changes)
    with pytest.raises(UnsupportedTableError) as refused:
        check_servable(table)
    text = str(refused.value)
    for part in ("version is 8", "LOCAL", "CUSTOM", "TIMESTAMP", "later.version", "column_stats", "bloom"):
        assert part in refused.value.reason, part
    assert refused.value.reason.startswith("7 things keep the table")
    assert text.count("column_stats") == 1
    assert "--drop-stats" in text


def test_stats_have_one_remedy(table: InMemoryStorage) -> None:
    """What every table has that Spark made with default options."""
    update_properties(table, {PARTITIONS: "files,record_index,column_stats,partition_stats"})
    with pytest.raises(UnsupportedTableError) as refused:
        check_servable(table)
    assert str(refused.value) == (
        "the metadata table keeps column_stats, partition_stats, which Tidemark does not maintain. "
        "Run `tidemark table adopt`, or `tidemark table adopt --drop-stats`"
    )


KEYGEN = "hoodie.table.keygenerator.class"
EXTRACTOR = "hoodie.table.partition_extractor_class"
STRATEGY = "hoodie.record.merge.strategy.id"
NOT_SERVED = [
    {"hoodie.datasource.write.slash.separated.date.partitioning": "true"},
    # All that a DataFrame of Hudi 1.2.0 leaves of slash-separated dates.
    {EXTRACTOR: "org.apache.hudi.hive.SlashEncodedDayPartitionValueExtractor"},
    {KEYGEN: "org.apache.hudi.keygen.TimestampBasedKeyGenerator"},
    {KEYGEN: "org.apache.hudi.keygen.ComplexKeyGenerator"},
    {"hoodie.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS"},
    {"hoodie.keygen.timebased.output.dateformat": "yyyy-MM-dd"},
    {STRATEGY: "11111111-2222-3333-4444-555555555555"},
    {STRATEGY: "ce9acb64-bde0-424c-9b91-f6ebba25356d"},
    {"hoodie.table.index.defs.path": "elsewhere.json"},
    {"hoodie.partition.metafile.use.base.format": "true"},
    {"hoodie.table.secondary.indexes.metadata": "x"},
]
SERVED = [
    {KEYGEN: "org.apache.hudi.keygen.SimpleKeyGenerator", STRATEGY: "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5"},
    {EXTRACTOR: "org.apache.hudi.hive.HiveStylePartitionValueExtractor"},
    # As CREATE TABLE of Spark SQL leaves it.
    {"hoodie.archivelog.folder": "archived", "hoodie.bootstrap.index.enable": "true"},
    {"hoodie.datasource.write.slash.separated.date.partitioning": "false", f"{PARTITIONS}.inflight": ""},
]


CHECKS = (check_servable, check_still_servable)


def test_a_property_that_is_not_known_is_refused_by_name_unless_it_is_accepted(
    table: InMemoryStorage,
) -> None:
    name = "hoodie.table.of.a.later.version"
    update_properties(table, {name: "1"})
    for check in CHECKS:
        with pytest.raises(UnsupportedTableError, match=r"table\.accept_properties") as refused:
            check(table)
        assert f"{name} is '1' (not known)" in refused.value.reason
        assert check(table, accepted=[name])


@pytest.mark.parametrize("changes", NOT_SERVED)
def test_a_value_that_would_misplace_rows_or_merge_them_otherwise_is_refused_whatever_is_accepted(
    table: InMemoryStorage, changes: dict[str, str]
) -> None:
    update_properties(table, {**changes, "hoodie.of.later": "x"})
    (name,) = changes
    for check in CHECKS:
        with pytest.raises(UnsupportedTableError, match="cannot be accepted") as refused:
            check(table, accepted=["hoodie.of.later"])
        assert f"{name} is {changes[name]!r} (served: " in refused.value.reason
        assert "hoodie.of.later" not in refused.value.reason
        assert "table.accept_properties" not in refused.value.remedy, "it would be refused as well"
        with pytest.raises(UnsupportedTableError, match="cannot be accepted") as refused:
            check(table, accepted=[name])
        assert f"table.accept_properties names {name}" in refused.value.reason


@pytest.mark.parametrize("changes", SERVED)
def test_what_hudi_writes_for_such_a_table_is_known(table: InMemoryStorage, changes: dict[str, str]) -> None:
    update_properties(table, changes)
    assert check_servable(table)


def test_all_unknown_properties_are_named_at_once(table: InMemoryStorage) -> None:
    update_properties(table, {"hoodie.x": "1", "y": "2"})
    with pytest.raises(UnsupportedTableError, match=r"hoodie\.x.*y is '2'"):
        check_servable(table, accepted=["z"])


def test_what_says_the_kind_of_table_cannot_be_accepted_away(table: InMemoryStorage) -> None:
    with pytest.raises(UnsupportedTableError, match=r"hoodie\.record\.merge\.mode.*cannot be accepted"):
        check_servable(table, accepted=["hoodie.record.merge.mode"])


def test_a_schema_history_of_schema_on_read_is_refused_an_empty_folder_is_not(table: InMemoryStorage) -> None:
    table.make_dir(".hoodie/.schema")
    table.create(".hoodie/.schema/.x.crc", b"")
    assert check_servable(table)
    table.create(".hoodie/.schema/20260101000000000.schemacommit.requested", b"")
    for check in (check_servable, check_still_servable):
        with pytest.raises(UnsupportedTableError, match="schema on read"):
            check(table)


def test_event_time_ordering_needs_its_field(table: InMemoryStorage) -> None:
    update_properties(table, {}, ["hoodie.table.ordering.fields"])
    with pytest.raises(UnsupportedTableError, match="missing"):
        check_servable(table)
    update_properties(table, {"hoodie.record.merge.mode": "COMMIT_TIME_ORDERING"})
    assert check_servable(table).ordering_fields == ()


def test_a_payload_class_that_means_the_merge_mode_is_served(table: InMemoryStorage) -> None:
    payload = "org.apache.hudi.common.model.DefaultHoodieRecordPayload"
    update_properties(table, {"hoodie.table.legacy.payload.class": payload})
    assert check_servable(table)


@pytest.mark.parametrize("value", [True, "true"])
def test_a_partitioned_record_index_is_served_where_there_are_partitions(
    table: InMemoryStorage, value: object
) -> None:
    write_index_definitions(table, {"record_index": record_index_definition(value)})
    assert record_index_kind(read_index_definitions(table)) is IndexKind.PARTITIONED
    assert check_servable(table)
    update_properties(table, {}, ["hoodie.table.partition.fields"])
    with pytest.raises(UnsupportedTableError, match=r"the table has no partition fields.*build the global"):
        check_servable(table)


@pytest.mark.parametrize(
    "action", [Action.COMMIT, Action.DELTA_COMMIT, Action.CLUSTERING, Action.ROLLBACK, Action.INDEXING]
)
def test_another_writers_pending_instant_is_refused_unless_it_is_ours_or_not_asked_for(
    table: InMemoryStorage, action: Action
) -> None:
    instant = "20260101000000000"
    create_inflight(Unfenced(table), create_requested(Unfenced(table), instant, action))
    with pytest.raises(UnsupportedTableError, match=instant):
        check_servable(table)
    assert check_servable(table, own_pending=[instant])
    assert check_servable(table, own_pending=None)


def test_an_unfinished_index_is_another_writers_business_once_the_table_is_served(
    table: InMemoryStorage,
) -> None:
    """A coordinator that starts while CREATE INDEX runs waits for it, as one that runs already."""
    update_properties(table, {"hoodie.table.metadata.partitions.inflight": "secondary_index_a"})
    for check in (check_servable, check_still_servable):
        with pytest.raises(IndexUnfinishedError, match="secondary_index_a") as raised:
            check(table)
        assert raised.value.index == "secondary_index_a"
    assert check_servable(table, own_pending=None)
    update_properties(table, {"hoodie.table.cdc.enabled": "true"})
    with pytest.raises(UnsupportedTableError, match="2 things keep the table") as both:
        check_still_servable(table)
    assert not isinstance(both.value, IndexUnfinishedError)
    with pytest.raises(UnsupportedTableError, match="change data"):
        check_servable(table, own_pending=None)


@pytest.mark.parametrize("action", [Action.COMPACTION, Action.CLEAN])
def test_a_pending_compaction_or_clean_does_not_stand_in_the_way(
    table: InMemoryStorage, action: Action
) -> None:
    create_requested(Unfenced(table), "20260101000000000", action, b"plan")
    assert check_servable(table)


def test_dropping_stats_makes_the_table_servable_and_is_repeatable(table: InMemoryStorage) -> None:
    update_properties(
        table,
        {
            PARTITIONS: "column_stats,files,partition_stats,record_index",
            f"{PARTITIONS}.inflight": "column_stats",
        },
    )
    definitions = {"column_stats": {"indexName": "column_stats", "version": "V2"}}
    write_index_definitions(table, {**read_index_definitions(table), **definitions})
    for path in ("column_stats/.x", "partition_stats/y", "files/z", "record_index/w"):
        table.create(f".hoodie/metadata/{path}", b"data")
    assert drop_stats(table) == {"column_stats", "partition_stats"}
    assert read_table_config(table).properties[PARTITIONS] == "files,record_index"
    assert f"{PARTITIONS}.inflight" not in read_table_config(table).properties
    assert list(read_index_definitions(table)) == ["record_index"]
    kept = [".hoodie/metadata/files/z", INDEX_FILE, f"{RECORD_INDEX_FOLDER}/w"]
    assert [info.path for info in table.walk(".hoodie/metadata")] == kept
    assert check_servable(table)
    before = table.read(INDEX_DEFINITIONS_PATH)
    assert drop_stats(table) == frozenset()
    assert table.read(INDEX_DEFINITIONS_PATH) == before


def test_local_time_is_pinned_to_utc_once_no_instant_lies_ahead(table: InMemoryStorage) -> None:
    update_properties(table, {"hoodie.table.timeline.timezone": "LOCAL"})
    clock = ManualClock()
    nine_hours_ahead = instant_from_ms(clock.now_ms() + 9 * 3_600_000)
    create_requested(Unfenced(table), nine_hours_ahead, Action.COMPACTION, root=METADATA_TABLE_ROOT)
    with pytest.raises(UnsupportedTableError, match=nine_hours_ahead):
        pin_timezone(table, clock)
    clock.sleep_ms(9 * 3_600_000 + 1)
    assert pin_timezone(table, clock)
    assert read_table_config(table).timeline_timezone == "UTC"
    assert not pin_timezone(table, clock)
    assert check_servable(table)
