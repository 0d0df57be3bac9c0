"""hoodie.properties: Java's text format, defaults, checksum, backup, updates."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testing.memory_storage import InMemoryStorage
from tidemark.hudi_format.commit.create_table import create_table
from tidemark.hudi_format.errors import (
    AlreadyExistsError,
    CorruptFileError,
    FileMissingError,
    UnsupportedTableError,
)
from tidemark.hudi_format.properties import format_properties, parse_properties
from tidemark.hudi_format.storage import LocalStorage
from tidemark.hudi_format.table_config import (
    BACKUP_PATH,
    PROPERTIES_PATH,
    KeyGeneratorType,
    MergeMode,
    TableDefinition,
    TableType,
    new_table_properties,
    read_properties,
    read_table_config,
    table_checksum,
    update_properties,
    write_properties,
)
from tidemark.hudi_format.timeline import load_timeline

DEFINITION = TableDefinition(
    name="flights",
    table_type=TableType.MERGE_ON_READ,
    record_key_fields=("flight_id",),
    partition_fields=("day",),
    ordering_fields=("event_time",),
)
SPARK_TEXT = r"""#Updated at 2026-01-01T00:00:00Z
#Thu Jan 01 00:00:00 UTC 2026
hoodie.table.name=t
hoodie.table.type=MERGE_ON_READ
hoodie.table.version=9
hoodie.timeline.layout.version=2
hoodie.table.create.schema={"type"\:"record","name"\:"t_record","fields"\:[]}
hoodie.table.partition.fields=region
hoodie.table.recordkey.fields=id,id2
hoodie.table.keygenerator.type=COMPLEX
hoodie.table.precombine.field=ts
hoodie.table.metadata.partitions=files,record_index
hoodie.table.checksum=498511606
some.other.engine\ key=\u00fc \
    continued
"""


def test_a_file_of_sparks_is_read_with_its_meaning() -> None:
    storage = InMemoryStorage()
    storage.create(PROPERTIES_PATH, SPARK_TEXT.encode())
    config = read_table_config(storage)
    assert (config.name, config.table_type, config.version) == ("t", TableType.MERGE_ON_READ, 9)
    assert config.record_key_fields == ("id", "id2")
    assert config.key_generator is KeyGeneratorType.COMPLEX
    assert config.ordering_fields == ("ts",)
    assert config.merge_mode is MergeMode.EVENT_TIME_ORDERING
    assert config.metadata_partitions == {"files", "record_index"}
    assert config.timeline_timezone == "LOCAL"
    assert config.properties["hoodie.table.create.schema"].startswith('{"type":"record"')
    assert config.properties["some.other.engine key"] == "ü continued"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", {"a": "b"}),
        ("a : b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("  a\t=\tb ", {"a": "b "}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("a==b", {"a": "=b"}),
        ("! no\n# no\n\na=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=1\\\n   2\\\n#3", {"a": "12#3"}),
        (r"a\=\:\ b=c\\d", {"a=: b": "c\\d"}),
        (r"a=\t\n\q", {"a": "\t\nq"}),
        (r"a=\uD83D\uDE00", {"a": "😀"}),
        ("a=1\na=2", {"a": "2"}),
    ],
)
def test_java_properties_are_parsed_as_java_does(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


def test_a_malformed_unicode_escape_is_corrupt() -> None:
    with pytest.raises(CorruptFileError):
        parse_properties(r"a=\u12")


_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(st.dictionaries(_text.filter(bool), _text, max_size=5))
def test_what_is_written_reads_back_the_same(values: dict[str, str]) -> None:
    text = format_properties(values, "two\nlines")
    assert text.isascii()
    assert parse_properties(text) == values


def test_the_checksum_is_the_one_that_hudi_computes() -> None:
    assert table_checksum("t") == 498511606


def test_a_new_table_has_all_its_properties_and_folders() -> None:
    storage = InMemoryStorage()
    config = create_table(storage, DEFINITION)
    assert dict(config.properties) == new_table_properties(DEFINITION)
    assert (config.version, config.layout_version, config.timeline_timezone) == (9, 2, "UTC")
    assert config.key_generator is KeyGeneratorType.SIMPLE
    assert config.merge_mode is MergeMode.EVENT_TIME_ORDERING
    assert config.is_merge_on_read
    assert config.is_partitioned
    assert config.metadata_partitions == frozenset()
    assert load_timeline(storage).instants == ()
    assert storage.exists(".hoodie/timeline/history")
    with pytest.raises(AlreadyExistsError):
        create_table(storage, DEFINITION)


@pytest.mark.parametrize(
    ("record_keys", "partitions", "ordering", "generator", "mode"),
    [
        (("a",), (), (), "NON_PARTITION", "COMMIT_TIME_ORDERING"),
        (("a", "b"), (), ("o",), "NON_PARTITION", "EVENT_TIME_ORDERING"),
        (("a",), ("p",), (), "SIMPLE", "COMMIT_TIME_ORDERING"),
        (("a", "b"), ("p",), (), "COMPLEX", "COMMIT_TIME_ORDERING"),
        (("a",), ("p", "q"), (), "COMPLEX", "COMMIT_TIME_ORDERING"),
    ],
)
def test_key_generator_and_merge_mode_follow_the_fields(
    record_keys: tuple[str, ...],
    partitions: tuple[str, ...],
    ordering: tuple[str, ...],
    generator: str,
    mode: str,
) -> None:
    properties = new_table_properties(
        TableDefinition(
            name="t",
            table_type=TableType.COPY_ON_WRITE,
            record_key_fields=record_keys,
            partition_fields=partitions,
            ordering_fields=ordering,
        )
    )
    assert properties["hoodie.table.keygenerator.type"] == generator
    assert properties["hoodie.record.merge.mode"] == mode
    assert ("hoodie.table.ordering.fields" in properties) == bool(ordering)


@pytest.mark.parametrize("name", ["", "a b", "a/b", "ü", "x" * 200, ".a"])
def test_table_names_that_would_not_work_are_refused(name: str) -> None:
    definition = TableDefinition(name=name, table_type=TableType.COPY_ON_WRITE, record_key_fields=("id",))
    with pytest.raises(UnsupportedTableError):
        create_table(InMemoryStorage(), definition)


def test_no_properties_means_no_table() -> None:
    with pytest.raises(FileMissingError, match="no Hudi table"):
        read_properties(InMemoryStorage("/base"))


def test_the_backup_is_read_while_the_file_is_missing_or_damaged() -> None:
    storage = InMemoryStorage()
    storage.create(BACKUP_PATH, SPARK_TEXT.encode())
    assert read_properties(storage)["hoodie.table.name"] == "t"
    storage.create(PROPERTIES_PATH, SPARK_TEXT.replace("498511606", "1").encode())
    assert read_properties(storage)["hoodie.table.checksum"] == "498511606"


@pytest.mark.parametrize("text", ["", "hoodie.table.name=t\nhoodie.table.checksum=1"])
def test_a_damaged_file_without_backup_is_corrupt(text: str) -> None:
    storage = InMemoryStorage()
    storage.create(PROPERTIES_PATH, text.encode())
    with pytest.raises(CorruptFileError):
        read_properties(storage)


def test_an_update_keeps_other_keys_and_removes_backup_and_stale_checksum_file() -> None:
    storage = InMemoryStorage()
    storage.create(PROPERTIES_PATH, SPARK_TEXT.encode())
    storage.create(".hoodie/.hoodie.properties.crc", b"crc")
    storage.create(BACKUP_PATH, SPARK_TEXT.encode())
    before = read_properties(storage)
    after = update_properties(
        storage, {"hoodie.table.timeline.timezone": "UTC"}, ["hoodie.table.metadata.partitions"]
    )
    assert after == read_properties(storage)
    assert after["hoodie.table.timeline.timezone"] == "UTC"
    assert "hoodie.table.metadata.partitions" not in after
    assert set(before) - set(after) == {"hoodie.table.metadata.partitions"}
    assert [info.name for info in storage.list(".hoodie")] == ["hoodie.properties"]


def test_an_update_that_changes_nothing_leaves_the_file_alone() -> None:
    storage = InMemoryStorage()
    storage.create(PROPERTIES_PATH, SPARK_TEXT.encode())
    update_properties(storage, {"hoodie.table.type": "MERGE_ON_READ"}, ["no.such.key"])
    assert storage.read(PROPERTIES_PATH) == SPARK_TEXT.encode()


def test_a_wrong_checksum_is_never_written() -> None:
    storage = InMemoryStorage()
    write_properties(storage, {"hoodie.table.name": "t", "hoodie.table.checksum": "7"})
    assert read_properties(storage)["hoodie.table.checksum"] == "498511606"


@pytest.mark.parametrize("value", ["READ_ONLY", "x"])
def test_a_value_out_of_range_names_key_and_choices(value: str) -> None:
    storage = InMemoryStorage()
    write_properties(storage, {"hoodie.table.name": "t", "hoodie.table.type": value})
    with pytest.raises(CorruptFileError, match=r"hoodie\.table\.type.*COPY_ON_WRITE"):
        read_table_config(storage)


def test_a_table_on_disk_is_plain_files(tmp_path: Path) -> None:
    create_table(LocalStorage(tmp_path), DEFINITION)
    lines = (tmp_path / ".hoodie" / "hoodie.properties").read_text("ascii").splitlines()
    assert "hoodie.table.name=flights" in lines
    found = subprocess.run(
        ["find", str(tmp_path), "-name", "*.tmp"], capture_output=True, check=True, text=True
    )
    assert found.stdout == ""
