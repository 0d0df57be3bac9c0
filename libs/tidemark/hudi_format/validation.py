"""Checks whether this release can serve a table (`table_repairs` makes what it lacks).

A table is refused rather than served in part. An index that Tidemark would not maintain, or a merge rule that
it does not know, would give readers wrong answers later. Every refusal names the setting and what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import Final, NoReturn

from tidemark.hudi_format import table_keys as keys
from tidemark.hudi_format.errors import IndexUnfinishedError, UnsupportedTableError, refuse
from tidemark.hudi_format.index_definitions import (
    IndexKind,
    read_index_definitions,
    record_index_kind,
)
from tidemark.hudi_format.metadata_table.folded_entries import FoldedEntries
from tidemark.hudi_format.metadata_table.missing_index import check_files, check_folder
from tidemark.hudi_format.metadata_table.other_indexes import NEEDED, other_index_problems
from tidemark.hudi_format.metadata_table.own_stats import (
    STATS_PARTITIONS,
    foreign_stats,
)
from tidemark.hudi_format.metadata_table.replaced_entries import ReplacedEntries
from tidemark.hudi_format.metadata_table.restored_index import check_index_is_of_the_rows
from tidemark.hudi_format.metadata_table.secondary_admission import secondary_problems, without_secondary
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.table_config import (
    TABLE_VERSION,
    TIMELINE_LAYOUT_VERSION,
    KeyGeneratorType,
    MergeMode,
    TableConfig,
    read_table_config,
)
from tidemark.hudi_format.table_properties import check_properties
from tidemark.hudi_format.table_schema import check_no_schema_on_read, table_schema
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, Action, load_timeline

METADATA_FILES: Final = "files"
METADATA_RECORD_INDEX: Final = "record_index"
METADATA_COLUMN_STATS: Final = "column_stats"
_BUILD_INDEX: Final = (
    "Build it with Hudi on Spark: an upsert of a DataFrame without rows, with the options that `tidemark "
    'table describe` prints (docs/hudi-beside.md, "A record index that was dropped")'
)
# The payload class of Hudi 0.x that means the same as each merge mode.
_PLAIN_PAYLOADS: Final = {
    MergeMode.EVENT_TIME_ORDERING: "org.apache.hudi.common.model.DefaultHoodieRecordPayload",
    MergeMode.COMMIT_TIME_ORDERING: "org.apache.hudi.common.model.OverwriteWithLatestAvroPayload",
}
_KEY_GENERATORS: Final = frozenset(
    {KeyGeneratorType.SIMPLE, KeyGeneratorType.COMPLEX, KeyGeneratorType.NON_PARTITION}
)
# Of other writers: what is pending may be committed later, without what was made meanwhile.
UNSAFE_PENDING: Final = (
    Action.COMMIT,
    Action.DELTA_COMMIT,
    Action.REPLACE_COMMIT,
    Action.CLUSTERING,
    Action.INDEXING,
    Action.ROLLBACK,
    Action.RESTORE,
    Action.LOG_COMPACTION,
)
_NEW_TABLE: Final = "Create a new table with `tidemark table create` and copy the rows"


def as_it_is(config: TableConfig) -> TableConfig:
    """The configuration as the properties state it: the default of `check_servable`."""
    return config


def as_adopted(config: TableConfig, stats: bool) -> TableConfig:
    """The configuration after `pin_timezone`, and after the table's stats were made ours; after `drop_stats`
    where ``stats`` is set.
    """
    dropped = STATS_PARTITIONS if stats else frozenset()
    return replace(
        without_stats(config),
        timeline_timezone="UTC",
        metadata_partitions_inflight=config.metadata_partitions_inflight - dropped,
    )


def without_stats(config: TableConfig) -> TableConfig:
    """The configuration after `take_out_stats`."""
    return replace(config, metadata_partitions=config.metadata_partitions - STATS_PARTITIONS)


def check_servable(
    storage: Storage,
    own_pending: Collection[str] | None = (),
    accepted: Collection[str] = (),
    changed: Callable[[TableConfig], TableConfig] = as_it_is,
) -> TableConfig:
    """Returns the table's configuration if this release serves the table; raises `UnsupportedTableError` if
    not.

    `own_pending`: requested times of pending instants that the caller is responsible for (its epoch in
    flight, a rollback that it will finish). Other pending writes are refused when a table is created or taken
    over, because a half-written table cannot be judged; None leaves this check out, for later, when pending
    writes and unfinished indexes are the other engines' business. `accepted`: unknown properties that are
    allowed. `changed`: maps the stored configuration to what the caller is about to make of it. Reads only.
    Raises also as `read_table_config`, `load_timeline` and `table_schema`.
    """
    config = check_still_servable(storage, accepted, changed, unfinished=own_pending is None)
    if own_pending is not None:
        _check_pending(storage, own_pending)
    timeline = load_timeline(storage)
    check_files(storage)
    metadata = load_timeline(storage, METADATA_TABLE_ROOT)
    check_index_is_of_the_rows(storage, timeline, metadata)
    ReplacedEntries(storage).check(timeline, metadata)
    FoldedEntries(storage).check(timeline, metadata)
    table_schema(storage, config, timeline)
    return config


def check_still_servable(
    storage: Storage,
    accepted: Collection[str] = (),
    changed: Callable[[TableConfig], TableConfig] = as_it_is,
    unfinished: bool = False,
) -> TableConfig:
    """Checks the parts that may change while we run: everything that `check_servable` checks, except the
    timeline and the commits.

    Raises IndexUnfinishedError where the only reason is an index that another writer has not finished, which
    is none with ``unfinished``. Every plan and every commit asks this first, so it is cheap: two small files,
    one listing, one look for a folder. Causes of such changes: a Spark write or table service with default
    options switches statistics on, one without the index options drops the record index, ALTER TABLE.
    """
    config = changed(read_table_config(storage))
    refused = [
        *_layout_problems(config),
        *_merging_problems(config),
        *_keys_problems(config),
        *_raised(lambda: check_properties(config, accepted)),
        *_indexes_problems(storage, config),
        *(() if changed is without_secondary else secondary_problems(storage, config)),
        *_raised(lambda: check_no_schema_on_read(storage)),
    ]
    others = [refusal for refusal in refused if not isinstance(refusal, IndexUnfinishedError)]
    if unfinished or others:
        refuse(others if unfinished else refused)
    elif refused:
        raise refused[0]
    return config


def _raised(check: Callable[[], object]) -> list[UnsupportedTableError]:
    try:
        check()
    except UnsupportedTableError as error:
        return [error]
    return []


def _refuse(reason: str, remedy: str) -> NoReturn:
    raise UnsupportedTableError(reason, remedy)


def _layout_problems(config: TableConfig) -> Iterator[UnsupportedTableError]:
    get = config.properties.get
    if config.version != TABLE_VERSION or config.layout_version != TIMELINE_LAYOUT_VERSION:
        yield UnsupportedTableError(
            f"{keys.VERSION} is {config.version} with timeline layout {config.layout_version}; "
            f"only version {TABLE_VERSION} with layout {TIMELINE_LAYOUT_VERSION} is served",
            "Upgrade the table by a write with Hudi 1.2",
        )
    if (
        get(keys.TIMELINE_PATH, "timeline") != "timeline"
        or get(keys.TIMELINE_HISTORY_PATH, "history") != "history"
    ):
        yield UnsupportedTableError(
            f"the timeline is in other folders than {keys.TIMELINE_PATH}=timeline and history", _NEW_TABLE
        )
    if get(keys.TABLE_FORMAT, "native") != "native":
        yield UnsupportedTableError(
            f"hoodie.table.format is {get('hoodie.table.format')}, only native is served", _NEW_TABLE
        )
    if get(keys.BOOTSTRAP_BASE_PATH):
        yield UnsupportedTableError(
            "the table is bootstrapped on files elsewhere (hoodie.bootstrap.base.path)", _NEW_TABLE
        )
    if config.base_file_format != "PARQUET" or get(keys.MULTIPLE_BASE_FILE_FORMATS) == "true":
        yield UnsupportedTableError(
            f"{keys.BASE_FILE_FORMAT} is {config.base_file_format}; only PARQUET is served", _NEW_TABLE
        )
    if not config.populate_meta_fields:
        yield UnsupportedTableError(
            f"{keys.POPULATE_META_FIELDS} is false: the files hold no record keys", _NEW_TABLE
        )
    if config.drop_partition_columns:
        yield UnsupportedTableError(
            f"{keys.DROP_PARTITION_COLUMNS} is true: the files lack the partition columns", _NEW_TABLE
        )
    if config.cdc_enabled:
        yield UnsupportedTableError(
            f"{keys.CDC_ENABLED} is true: Tidemark writes no change data files",
            f"Set {keys.CDC_ENABLED} to false, if no reader needs them",
        )
    if config.timeline_timezone != "UTC":
        yield UnsupportedTableError(
            f"{keys.TIMEZONE} is {config.timeline_timezone}: instants depend on the writer's time zone",
            "Run `tidemark table adopt`, which sets it to UTC; restart other writers afterwards",
        )


def _merging_problems(config: TableConfig) -> Iterator[UnsupportedTableError]:
    get = config.properties.get
    if config.merge_mode is MergeMode.CUSTOM:
        named = get(keys.PAYLOAD_CLASS) or get(keys.MERGE_STRATEGY_ID) or "a merger of its own"
        yield UnsupportedTableError(
            f"{keys.MERGE_MODE} is CUSTOM ({named}); EVENT_TIME_ORDERING and COMMIT_TIME_ORDERING are served",
            _NEW_TABLE,
        )
        return
    for key in (keys.PAYLOAD_CLASS, keys.LEGACY_PAYLOAD_CLASS):
        if get(key) and get(key) != _PLAIN_PAYLOADS[config.merge_mode]:
            yield UnsupportedTableError(
                f"{key} is {get(key)}, which is not {config.merge_mode.value}", _NEW_TABLE
            )
    special = [key for key in config.properties if key.startswith("hoodie.record.merge.property.")]
    if get(keys.PARTIAL_UPDATE_MODE, "NONE") not in ("", "NONE") or special:
        yield UnsupportedTableError(
            f"the table merges records partially or by markers ({keys.PARTIAL_UPDATE_MODE}, {special})",
            _NEW_TABLE,
        )
    if config.merge_mode is MergeMode.EVENT_TIME_ORDERING and len(config.ordering_fields) != 1:
        yield UnsupportedTableError(
            f"{keys.ORDERING_FIELDS} is {','.join(config.ordering_fields) or 'missing'}; "
            "event time ordering needs one field",
            _NEW_TABLE,
        )


def _keys_problems(config: TableConfig) -> Iterator[UnsupportedTableError]:
    if not config.record_key_fields:
        yield UnsupportedTableError(
            f"{keys.RECORD_KEY_FIELDS} is missing: the record keys are generated", _NEW_TABLE
        )
    if config.key_generator not in _KEY_GENERATORS:
        named = config.properties.get(keys.KEY_GENERATOR_TYPE, "missing")
        yield UnsupportedTableError(
            f"{keys.KEY_GENERATOR_TYPE} is {named}; SIMPLE, COMPLEX and NON_PARTITION are served", _NEW_TABLE
        )
    typed = [name for name in config.partition_fields if ":" in name]
    if typed:
        yield UnsupportedTableError(
            f"{keys.PARTITION_FIELDS} is {','.join(config.partition_fields)}: a field with a type of its own "
            "(name:TYPE) is made by a custom key generator",
            _NEW_TABLE,
        )


def _indexes_problems(storage: Storage, config: TableConfig) -> Iterator[UnsupportedTableError]:
    in_use = config.metadata_partitions
    if not in_use:
        yield UnsupportedTableError(
            f"{keys.METADATA_PARTITIONS} is missing: the table has no metadata table",
            _BUILD_INDEX,
        )
        return
    if METADATA_RECORD_INDEX not in in_use or METADATA_FILES not in in_use:
        yield UnsupportedTableError(
            f"{keys.METADATA_PARTITIONS} is {','.join(sorted(in_use))}: the table has no record level index",
            _BUILD_INDEX,
        )
    if config.metadata_partitions_inflight:
        yield _building(config)
    definitions = read_index_definitions(storage)
    kind = record_index_kind(definitions)
    if kind is IndexKind.PARTITIONED and not config.partition_fields:
        yield UnsupportedTableError(
            "the record level index is partitioned, and the table has no partition fields",
            "Drop the index and build the global one with Hudi on Spark",
        )
    elif METADATA_RECORD_INDEX in in_use:
        yield from _raised(lambda: check_folder(storage))
    found = foreign_stats(storage, config)
    if found is not None:
        yield UnsupportedTableError(
            f"the metadata table keeps {', '.join(sorted(found.names))}, which Tidemark does not maintain",
            "Run `tidemark table adopt`, or `tidemark table adopt --drop-stats`",
        )
    yield from other_index_problems(config, definitions.keys())


def _building(config: TableConfig) -> IndexUnfinishedError:
    building = config.metadata_partitions_inflight
    names, needed = ",".join(sorted(building)), ", ".join(sorted(building & NEEDED))
    dead = f"; {needed} is not taken out when its builder is dead: drop it, and build it anew"
    return IndexUnfinishedError(
        names,
        f"{keys.METADATA_PARTITIONS_INFLIGHT} is {names}: an index is being built",
        f"Wait until it is done{dead if needed else ''}",
    )


def _check_pending(storage: Storage, own_pending: Collection[str]) -> None:
    own = set(own_pending)
    for instant in load_timeline(storage).pending(*UNSAFE_PENDING):
        if instant.requested not in own:
            _refuse(
                f"another writer's {instant.action.value} {instant.requested} is pending on the timeline",
                "Let that writer finish; a dead one's is rolled back by the next write with Hudi on Spark",
            )
