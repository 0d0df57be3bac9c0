"""The list of table properties that we know, with the values that we serve.

A property that another version of Hudi adds, or that this list lacks, may change where rows are stored, how
they are keyed or how they are merged, without any other trace. So every property that is not on the list is
refused by name; a user who knows it to be harmless accepts it by `table.accept_properties`. The list was
compared with the properties that Hudi 1.2.0 on Spark writes (DataFrames and SQL; SIMPLE, COMPLEX and
NON_PARTITION keys; with payload classes), and with the names in its `HoodieTableConfig`.

A property on the list cannot be accepted. `validation` judges the `_INTERPRETED` ones by their meaning. For
all others a value that is not listed is known to be wrong: slash-separated dates and timestamp-based keys put
rows into other folders, and another merge strategy merges them otherwise.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from tidemark.hudi_format import table_keys as keys
from tidemark.hudi_format.errors import UnsupportedTableError
from tidemark.hudi_format.index_definitions import INDEX_DEFINITIONS_PATH
from tidemark.hudi_format.table_config import KeyGeneratorType, MergeMode, TableConfig

CONFIG_KEY: Final = "table.accept_properties"
_INTERPRETED: Final = frozenset(
    {
        keys.NAME,
        keys.DATABASE,
        keys.TYPE,
        keys.VERSION,
        keys.LAYOUT_VERSION,
        keys.TIMELINE_PATH,
        keys.TIMELINE_HISTORY_PATH,
        keys.TABLE_FORMAT,
        keys.BASE_FILE_FORMAT,
        keys.MULTIPLE_BASE_FILE_FORMATS,
        keys.BOOTSTRAP_BASE_PATH,
        keys.RECORD_KEY_FIELDS,
        keys.PARTITION_FIELDS,
        keys.KEY_GENERATOR_TYPE,
        keys.MERGE_MODE,
        keys.ORDERING_FIELDS,
        keys.PRECOMBINE_FIELD,
        keys.POPULATE_META_FIELDS,
        keys.CDC_ENABLED,
        keys.HIVE_STYLE,
        keys.URL_ENCODE,
        keys.DROP_PARTITION_COLUMNS,
        keys.TIMEZONE,
        keys.CHECKSUM,
        keys.METADATA_PARTITIONS,
        keys.METADATA_PARTITIONS_INFLIGHT,
        keys.PAYLOAD_CLASS,
        keys.LEGACY_PAYLOAD_CLASS,
        keys.PARTIAL_UPDATE_MODE,
    }
)
# These properties say nothing about how rows are found, keyed or merged.
_ANY_VALUE: Final = frozenset(
    {
        keys.CREATE_SCHEMA,
        "hoodie.table.initial.version",
        # A property of timeline layout 1. Spark SQL writes `archived` here for layout 2, too.
        "hoodie.archivelog.folder",
        # These two mean nothing without a bootstrap base path and change data capture.
        "hoodie.bootstrap.index.class",
        "hoodie.table.cdc.supplemental.logging.mode",
    }
)
_ONE_OF: Final[Mapping[str, tuple[str, ...]]] = {
    keys.INDEX_DEFINITIONS_PATH: (INDEX_DEFINITIONS_PATH,),
    "hoodie.table.log.file.format": ("HOODIE_LOG",),
    "hoodie.partition.metafile.use.base.format": ("false",),
    "hoodie.bootstrap.index.enable": ("true", "false"),
    "hoodie.bootstrap.index.type": ("HFILE", "NO_OP"),
    "hoodie.table.secondary.indexes.metadata": ("",),
    # With slash-separated dates the partition `2024-01-05` is in the folder `2024/01/05`.
    keys.SLASH_SEPARATED_DATES: ("false",),
    # How Hive reads partition paths. For a table that a DataFrame created, slash-separated dates leave no
    # other trace than this property.
    "hoodie.table.partition_extractor_class": tuple(
        f"org.apache.hudi.hive.{name}"
        for name in (
            "NonPartitionedExtractor",
            "SinglePartPartitionValueExtractor",
            "MultiPartKeysValueExtractor",
            "HiveStylePartitionValueExtractor",
        )
    ),
}
# Settings of timestamp-based keys, with which Hudi makes partition paths from the times in a column.
_TIMESTAMP_BASED: Final = ("hoodie.keygen.timebased.", "hoodie.deltastreamer.keygen.timebased.")
_GENERATOR_CLASSES: Final[Mapping[KeyGeneratorType, tuple[str, ...]]] = {
    kind: tuple(f"org.apache.hudi.keygen.{name}" for name in names)
    for kind, names in {
        KeyGeneratorType.SIMPLE: ("SimpleKeyGenerator", "SimpleAvroKeyGenerator"),
        KeyGeneratorType.COMPLEX: ("ComplexKeyGenerator", "ComplexAvroKeyGenerator"),
        KeyGeneratorType.NON_PARTITION: ("NonpartitionedKeyGenerator", "NonpartitionedAvroKeyGenerator"),
    }.items()
}
# HoodieRecordMerger.EVENT_TIME_BASED_MERGE_STRATEGY_UUID and COMMIT_TIME_BASED_MERGE_STRATEGY_UUID.
_STRATEGIES: Final[Mapping[MergeMode, tuple[str, ...]]] = {
    MergeMode.EVENT_TIME_ORDERING: ("eeb8d96f-b1e4-49fd-bbf8-28ac514178e5",),
    MergeMode.COMMIT_TIME_ORDERING: ("ce9acb64-bde0-424c-9b91-f6ebba25356d",),
}


def check_properties(config: TableConfig, accepted: Collection[str] = ()) -> None:
    """Checks the properties of a table against the list.

    Raises `UnsupportedTableError`, which names every unknown property that is not `accepted`, every property
    with a value that is not served, and every accepted property that is on the list.
    """
    known = sorted(filter(_is_known, accepted))
    if known:
        raise UnsupportedTableError(
            f"{CONFIG_KEY} names {', '.join(known)}: Tidemark serves or refuses them by their value, "
            "so they cannot be accepted",
            f"Take it out of {CONFIG_KEY}",
        )
    properties = sorted(config.properties.items())
    wrong = [
        f"{name} is {value!r} ({why})"
        for name, value in properties
        if (why := _why_not(name, value, config)) is not None
    ]
    unknown = [
        f"{name} is {value!r} (not known)"
        for name, value in properties
        if not _is_known(name) and name not in accepted
    ]
    if not wrong and not unknown:
        return
    remedies = []
    if unknown:
        remedies.append(
            "If you know that a property which is not known changes neither where rows are stored nor how "
            f"they are keyed and merged, name it in {CONFIG_KEY}"
        )
    if wrong:
        remedies.append("A value that is not served cannot be accepted")
    raise UnsupportedTableError(
        f"this release does not serve these properties of hoodie.properties: {'; '.join(wrong + unknown)}",
        f"{'. '.join(remedies)}. Else create a new table with `tidemark table create` and copy the rows",
    )


def _is_known(name: str) -> bool:
    return (
        name in _INTERPRETED
        or name in _ANY_VALUE
        or name in _ONE_OF
        or name in (keys.KEY_GENERATOR_CLASS, keys.MERGE_STRATEGY_ID)
        or name.startswith(_TIMESTAMP_BASED)
    )


def _why_not(name: str, value: str, config: TableConfig) -> str | None:
    """Why the value of a known property is not served; None when it is."""
    if name == keys.KEY_GENERATOR_CLASS:
        return _other_than(value, _GENERATOR_CLASSES.get(config.key_generator, ()))
    if name == keys.MERGE_STRATEGY_ID:
        return _other_than(value, _STRATEGIES.get(config.merge_mode, ()))
    if name in _ONE_OF:
        return _other_than(value, _ONE_OF[name])
    if name.startswith(_TIMESTAMP_BASED):
        return _other_than(value, ())
    return None


def _other_than(value: str, served: tuple[str, ...]) -> str | None:
    if value.strip() in served:
        return None
    return f"served: {' or '.join(value or 'nothing' for value in served) or 'no such property'}"
