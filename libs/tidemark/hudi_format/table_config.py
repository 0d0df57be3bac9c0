"""`hoodie.properties`, the configuration of a table (FORMAT.md, section 2).

Invariants: the checksum (CRC-32 of "<database>.<table>") covers only these names, so other keys may change
without a new one; a file with a wrong checksum is not used. Every update keeps unknown keys. Hudi updates the
file by way of `hoodie.properties.backup`, so for a moment only the backup may exist, and is read then.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Final, TypeVar

from tidemark.hudi_format import table_keys as keys
from tidemark.hudi_format.errors import CorruptFileError, FileMissingError, UnsupportedTableError
from tidemark.hudi_format.properties import format_properties, parse_properties
from tidemark.hudi_format.storage.base import Storage

PROPERTIES_PATH: Final = ".hoodie/hoodie.properties"
BACKUP_PATH: Final = ".hoodie/hoodie.properties.backup"
TABLE_VERSION: Final = 9
TIMELINE_LAYOUT_VERSION: Final = 2

_TABLE_NAME: Final = re.compile(r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$")
_READ_ATTEMPTS_MAX: Final = 4


class TableType(Enum):
    """How Hudi stores updates: in new base files, or in log files beside the base files."""

    COPY_ON_WRITE = "COPY_ON_WRITE"
    MERGE_ON_READ = "MERGE_ON_READ"


class MergeMode(Enum):
    """How Hudi merges two versions of a record."""

    EVENT_TIME_ORDERING = "EVENT_TIME_ORDERING"
    COMMIT_TIME_ORDERING = "COMMIT_TIME_ORDERING"
    CUSTOM = "CUSTOM"


class KeyGeneratorType(Enum):
    """How Hudi makes record key and partition path from fields. Version 9 stores this type instead of a
    class.
    """

    SIMPLE = "SIMPLE"
    COMPLEX = "COMPLEX"
    NON_PARTITION = "NON_PARTITION"
    TIMESTAMP = "TIMESTAMP"
    CUSTOM = "CUSTOM"
    OTHER = "OTHER"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableConfig:
    """The properties as typed fields; `properties` holds all of them as text, as in the file.

    A missing key has the value that Hudi assumes for it. `metadata_partitions` are the partitions of the
    metadata table in use (empty: there is no metadata table), `metadata_partitions_inflight` those that are
    being built.
    """

    name: str
    database: str
    table_type: TableType
    version: int
    layout_version: int
    record_key_fields: tuple[str, ...]
    partition_fields: tuple[str, ...]
    key_generator: KeyGeneratorType
    merge_mode: MergeMode
    ordering_fields: tuple[str, ...]
    hive_style_partitioning: bool
    url_encode_partitioning: bool
    populate_meta_fields: bool
    drop_partition_columns: bool
    cdc_enabled: bool
    timeline_timezone: str
    base_file_format: str
    metadata_partitions: frozenset[str]
    metadata_partitions_inflight: frozenset[str]
    properties: Mapping[str, str]

    @property
    def is_merge_on_read(self) -> bool:
        """Whether updates go to log files."""
        return self.table_type is TableType.MERGE_ON_READ

    @property
    def is_partitioned(self) -> bool:
        """Whether records have a partition path other than ''."""
        return bool(self.partition_fields)

    @property
    def ordering_field(self) -> str | None:
        """The first ordering field, None without one. A table with event-time ordering has one."""
        return self.ordering_fields[0] if self.ordering_fields else None


def table_checksum(name: str, database: str = "") -> int:
    """The unsigned CRC-32 of the UTF-8 text "<database>.<table>"."""
    return zlib.crc32(f"{database}.{name}".encode())


def read_properties(storage: Storage, root: str = ".hoodie") -> dict[str, str]:
    """All properties of the table whose meta folder is `root`, from the file, or else from its backup.

    Raises `FileMissingError` when neither file exists (no Hudi table here), and `CorruptFileError` when
    neither is whole.
    """
    damage: CorruptFileError | None = None
    for attempt in range(_READ_ATTEMPTS_MAX):
        path = f"{root}/hoodie.properties" + (".backup" if attempt % 2 else "")
        try:
            return _checked(storage.read(path), path)
        except FileMissingError:
            continue
        except CorruptFileError as error:
            damage = error
    if damage is not None:
        raise damage
    raise FileMissingError(f"{storage.base_uri} is no Hudi table: it has no {root}/hoodie.properties")


def _checked(data: bytes, path: str) -> dict[str, str]:
    return dict(_parsed(data, path))


@lru_cache(maxsize=8)
def _parsed(data: bytes, path: str) -> Mapping[str, str]:
    """Every attempt and every command reads the file again, and it hardly ever changes."""
    properties = parse_properties(data.decode("latin-1"), path)
    name = properties.get(keys.NAME)
    if not name:
        raise CorruptFileError(f"{path} has no {keys.NAME}")
    expected = str(table_checksum(name, properties.get(keys.DATABASE, "")))
    written = properties.get(keys.CHECKSUM, expected)
    if written != expected:
        raise CorruptFileError(f"{path}: {keys.CHECKSUM} is {written}, the table's name gives {expected}")
    return properties


def read_table_config(storage: Storage, root: str = ".hoodie") -> TableConfig:
    """The configuration of a table. Raises as `read_properties`, and `CorruptFileError` for a bad value."""
    return parse_table_config(read_properties(storage, root), f"{root}/hoodie.properties")


def parse_table_config(properties: Mapping[str, str], path: str = PROPERTIES_PATH) -> TableConfig:
    """The properties as typed fields; errors name the file `path`. Raises `CorruptFileError` for a bad
    value.
    """
    get = properties.get
    ordering = _names(get(keys.ORDERING_FIELDS) or get(keys.PRECOMBINE_FIELD))
    default_mode = MergeMode.EVENT_TIME_ORDERING if ordering else MergeMode.COMMIT_TIME_ORDERING
    return TableConfig(
        name=properties[keys.NAME],
        database=get(keys.DATABASE, ""),
        table_type=_member(TableType, get(keys.TYPE, TableType.COPY_ON_WRITE.value), keys.TYPE, path),
        version=_number(get(keys.VERSION, "0"), keys.VERSION, path),
        layout_version=_number(get(keys.LAYOUT_VERSION, "0"), keys.LAYOUT_VERSION, path),
        record_key_fields=tuple(_names(get(keys.RECORD_KEY_FIELDS))),
        partition_fields=tuple(_names(get(keys.PARTITION_FIELDS))),
        key_generator=_key_generator(get(keys.KEY_GENERATOR_TYPE, "")),
        merge_mode=_member(MergeMode, get(keys.MERGE_MODE, default_mode.value), keys.MERGE_MODE, path),
        ordering_fields=tuple(ordering),
        hive_style_partitioning=_flag(get(keys.HIVE_STYLE), False),
        url_encode_partitioning=_flag(get(keys.URL_ENCODE), False),
        populate_meta_fields=_flag(get(keys.POPULATE_META_FIELDS), True),
        drop_partition_columns=_flag(get(keys.DROP_PARTITION_COLUMNS), False),
        cdc_enabled=_flag(get(keys.CDC_ENABLED), False),
        timeline_timezone=get(keys.TIMEZONE, "LOCAL").upper(),
        base_file_format=get(keys.BASE_FILE_FORMAT, "PARQUET").upper(),
        metadata_partitions=frozenset(_names(get(keys.METADATA_PARTITIONS))),
        metadata_partitions_inflight=frozenset(_names(get(keys.METADATA_PARTITIONS_INFLIGHT))),
        properties=dict(properties),
    )


def without_partitions(config: TableConfig, names: Collection[str]) -> dict[str, str]:
    """The table's properties without these partitions of the metadata table, which it lists as there or as
    being built. A property that would list none goes.
    """
    properties = dict(config.properties)
    for key, listed in (
        (keys.METADATA_PARTITIONS, config.metadata_partitions),
        (keys.METADATA_PARTITIONS_INFLIGHT, config.metadata_partitions_inflight),
    ):
        kept = listed.difference(names)
        if kept == listed:
            continue
        if kept:
            properties[key] = ",".join(sorted(kept))
        else:
            del properties[key]
    return properties


def write_properties(storage: Storage, properties: Mapping[str, str], root: str = ".hoodie") -> None:
    """Replaces the file in one step, with its checksum, and removes a backup that an engine left behind."""
    storage.replace(f"{root}/hoodie.properties", properties_file(properties))
    storage.delete(f"{root}/hoodie.properties.backup")


def properties_file(properties: Mapping[str, str]) -> bytes:
    """The content of `hoodie.properties`, with its checksum."""
    values = dict(properties)
    values[keys.CHECKSUM] = str(table_checksum(values[keys.NAME], values.get(keys.DATABASE, "")))
    return format_properties(values, "Updated by Tidemark").encode("ascii")


def update_properties(
    storage: Storage, changes: Mapping[str, str], remove: Iterable[str] = (), root: str = ".hoodie"
) -> dict[str, str]:
    """Sets and removes keys, keeps all others, and returns the new properties. Hold the table's lock.

    A reader, or a crash, in between sees the old file or the new one. Nothing is written when nothing
    changes.
    """
    current = read_properties(storage, root)
    changed = {key: value for key, value in {**current, **changes}.items() if key not in set(remove)}
    if changed != current:
        write_properties(storage, changed, root)
    return changed


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDefinition:
    """The choices that define a new table. Without ordering fields the later arrival wins
    (COMMIT_TIME_ORDERING).

    `schema` is the table's Avro schema as JSON, without meta columns; it is stored as
    `hoodie.table.create.schema`.
    """

    name: str
    table_type: TableType
    record_key_fields: tuple[str, ...]
    partition_fields: tuple[str, ...] = ()
    ordering_fields: tuple[str, ...] = ()
    hive_style_partitioning: bool = False
    url_encode_partitioning: bool = False
    database: str = ""
    schema: str | None = None


def new_table_properties(definition: TableDefinition) -> dict[str, str]:
    """All properties of a new table of version 9, before it has a metadata table (FORMAT.md, section 2.1).

    Raises `UnsupportedTableError` for a table name or a choice of fields that Hudi could not work with.
    """
    if not _TABLE_NAME.match(definition.name):
        raise UnsupportedTableError(
            f"table name {definition.name!r} is not made of letters, digits, '_', '-' and '.'",
            "Choose another table.name",
        )
    if not definition.record_key_fields:
        raise UnsupportedTableError("the table has no record key", "Name its fields in table.record_key")
    mode = MergeMode.EVENT_TIME_ORDERING if definition.ordering_fields else MergeMode.COMMIT_TIME_ORDERING
    properties = {
        keys.NAME: definition.name,
        keys.TYPE: definition.table_type.value,
        keys.VERSION: str(TABLE_VERSION),
        "hoodie.table.initial.version": str(TABLE_VERSION),
        keys.LAYOUT_VERSION: str(TIMELINE_LAYOUT_VERSION),
        keys.TIMELINE_PATH: "timeline",
        keys.TIMELINE_HISTORY_PATH: "history",
        "hoodie.archivelog.folder": "history",
        keys.TABLE_FORMAT: "native",
        keys.BASE_FILE_FORMAT: "PARQUET",
        keys.RECORD_KEY_FIELDS: ",".join(definition.record_key_fields),
        keys.PARTITION_FIELDS: ",".join(definition.partition_fields),
        keys.KEY_GENERATOR_TYPE: _inferred_key_generator(definition).value,
        keys.MERGE_MODE: mode.value,
        keys.POPULATE_META_FIELDS: "true",
        keys.CDC_ENABLED: "false",
        keys.HIVE_STYLE: str(definition.hive_style_partitioning).lower(),
        keys.URL_ENCODE: str(definition.url_encode_partitioning).lower(),
        keys.DROP_PARTITION_COLUMNS: "false",
        "hoodie.partition.metafile.use.base.format": "false",
        keys.MULTIPLE_BASE_FILE_FORMATS: "false",
        keys.TIMEZONE: "UTC",
        keys.CHECKSUM: str(table_checksum(definition.name, definition.database)),
    }
    if definition.database:
        properties[keys.DATABASE] = definition.database
    if definition.ordering_fields:
        properties[keys.ORDERING_FIELDS] = ",".join(definition.ordering_fields)
    if definition.schema is not None:
        properties[keys.CREATE_SCHEMA] = definition.schema
    return properties


def _inferred_key_generator(definition: TableDefinition) -> KeyGeneratorType:
    if not definition.partition_fields:
        return KeyGeneratorType.NON_PARTITION
    if len(definition.record_key_fields) == 1 and len(definition.partition_fields) == 1:
        return KeyGeneratorType.SIMPLE
    return KeyGeneratorType.COMPLEX


def _names(text: str | None) -> list[str]:
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def _flag(text: str | None, default: bool) -> bool:
    return default if text is None else text.strip().lower() == "true"


def _number(text: str, key: str, path: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise CorruptFileError(f"{path}: {key} is {text!r}, a number was expected") from error


def _key_generator(text: str) -> KeyGeneratorType:
    return (
        KeyGeneratorType(text)
        if text in {kind.value for kind in KeyGeneratorType}
        else KeyGeneratorType.OTHER
    )


_Member = TypeVar("_Member", bound=Enum)


def _member(kind: type[_Member], text: str, key: str, path: str) -> _Member:
    try:
        return kind(text)
    except ValueError as error:
        known = ", ".join(str(member.value) for member in kind)
        raise CorruptFileError(f"{path}: {key} is {text!r}, one of {known} was expected") from error
