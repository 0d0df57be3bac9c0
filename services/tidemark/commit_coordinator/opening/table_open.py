"""Opens the table that the configuration names: creates it if there is none, refuses it if it cannot be
served.

All checks come before the first write.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tidemark.commit_coordinator.errors import CoordinatorError
from tidemark.commit_coordinator.opening.configured_columns import check_columns_kept, record_columns
from tidemark.commit_coordinator.opening.table_creation import create_or_finish, is_half_made
from tidemark.config import TableConfigFile
from tidemark.config.hoodie_section import HIVE_STYLE, URL_ENCODE, is_true
from tidemark.config.model import ConfiguredTableType
from tidemark.config.origins import read_origins
from tidemark.errors import ErrorKind
from tidemark.hudi_format.errors import UnsupportedTableError
from tidemark.hudi_format.file_group.readable_logs import ReadableLogs
from tidemark.hudi_format.index_definitions import (
    IndexKind,
    read_record_index_kind,
)
from tidemark.hudi_format.keys import KeyGenerator
from tidemark.hudi_format.metadata_table import missing_index
from tidemark.hudi_format.metadata_table.partitioned_index import layout_of
from tidemark.hudi_format.metadata_table.scanned_ranges import check_stats_columns
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot
from tidemark.hudi_format.ordering import OrderingField
from tidemark.hudi_format.publication.port import Term
from tidemark.hudi_format.schema import SchemaError, TableSchema, union
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.table_config import PROPERTIES_PATH, TableConfig, TableDefinition, TableType
from tidemark.hudi_format.table_schema import table_schema
from tidemark.hudi_format.table_view import TableView
from tidemark.hudi_format.timeline import load_timeline
from tidemark.hudi_format.validation import as_it_is, check_servable, without_stats
from tidemark.stream_runtime.clock import Clock

_LOOKS_MAX: Final = 5
_TYPES: Final = {
    ConfiguredTableType.MERGE_ON_READ: TableType.MERGE_ON_READ,
    ConfiguredTableType.COPY_ON_WRITE: TableType.COPY_ON_WRITE,
}


class TableMismatchError(CoordinatorError):
    """Configuration and table contradict each other; the text has both values of each setting."""

    kind = ErrorKind.INVALID


@dataclass(frozen=True)
class OpenedTable:
    """The opened table. ``num_shards``: of a global record index; 0 where it is partitioned, because each
    data partition has shards of its own, and their number belongs to nobody. ``schema``: the union of the
    table's schema and of `table.schema`, whose columns are ``configured``. ``created``: this call made it.
    ``logs``: checks log files that other engines add.
    """

    config: TableConfig
    num_shards: int
    schema: TableSchema
    created: bool
    logs: ReadableLogs
    configured: Sequence[str] = ()
    kind: IndexKind = IndexKind.GLOBAL

    def keep_columns(self, term: Term) -> None:
        """Records the configured columns for the next start. Raises FencedOutError when the term is over."""
        record_columns(term, self.configured)


def open_table(
    file: TableConfigFile, storage: Storage, clock: Clock, own_pending: Collection[str] | None = ()
) -> OpenedTable:
    """Creates the table, or checks the one that is there. ``own_pending``: as in `check_servable`; None also
    says that the table is served already, so that stats which another writer switched on meanwhile are no
    reason to refuse it: the first plan takes them out.

    Raises TableMismatchError, MissingColumnsError, CreationError, UnsupportedTableError (another version, no
    record index, log files that cannot be read, …), SchemaError.
    """
    configured = _configured(file)
    definition = definition_of(file, configured)
    created = not storage.exists(PROPERTIES_PATH) or is_half_made(storage, definition)
    if created:
        _check_columns(file, configured)
        index = file.table.index
        check_stats_columns(configured, index.column_stats)
        kind = configured_kind(file)
        create_or_finish(storage, definition, index.shards, clock, index.column_stats, kind)
    changed = without_stats if own_pending is None else as_it_is
    return replace(read_table(file, storage, own_pending, changed), created=created)


def read_table(
    file: TableConfigFile,
    storage: Storage,
    own_pending: Collection[str] | None = (),
    changed: Callable[[TableConfig], TableConfig] = as_it_is,
) -> OpenedTable:
    """Makes all checks of `open_table` on an existing table, and writes nothing.

    ``own_pending``, ``changed``: as in `check_servable`. Raises as `open_table`.
    """
    configured = _configured(file)
    config = check_servable(storage, own_pending, file.table.accept_properties, changed)
    check_same(file, config)
    kind = _same_kind(file, storage)
    check_columns_kept(file, storage, configured)
    schema = union_with_table(file, storage, config, configured)
    _check_columns(file, schema)
    snapshot = MetadataTableSnapshot.load(storage)
    if kind is IndexKind.GLOBAL:
        missing_index.check_shards(snapshot.num_shards)
        check_shards(file, snapshot.num_shards)
    else:
        # Of each data partition: that no group is missing between others, and none is of a global index.
        layout_of(snapshot)
    logs = ReadableLogs(storage, config.ordering_field)
    view = TableView.of(storage, snapshot.data_timeline)
    logs.check(view.slices(snapshot.files.names()), snapshot.files.files)
    return OpenedTable(config, snapshot.num_shards, schema, False, logs, configured.arrow.names, kind)


def _configured(file: TableConfigFile) -> TableSchema:
    """`table.schema`. Raises SchemaError."""
    return TableSchema.from_avro(file.table.schema.read_text(encoding="utf-8"), file.table.name)


def configured_kind(file: TableConfigFile) -> IndexKind:
    """`table.index.kind`."""
    return IndexKind(file.table.index.kind.value)


def _same_kind(file: TableConfigFile, storage: Storage) -> IndexKind:
    """The kind of the table's record index. Raises TableMismatchError when another one is configured: what
    identifies a row follows from it.
    """
    kind, wanted = read_record_index_kind(storage), configured_kind(file)
    if kind is not wanted:
        raise TableMismatchError(
            f"{file.file}: table.index.kind is {wanted}, the record index of {file.table.path} is {kind}. "
            "If another engine built the index anew since, it has to get its former kind. Else: the kind "
            f"counts only when the index is made, so set it to {kind}"
        )
    return kind


def open_beside_predecessor(
    open_with: Callable[[Collection[str] | None], OpenedTable], has_begun: Callable[[], bool]
) -> OpenedTable:
    """Opens the table with ``open_with``. Pending writes are refused at its first start only.

    ``has_begun``: whether the ledger has begun. If the table is refused, it is asked again: a coordinator
    that starts at the same time may have begun the ledger, and its first epoch's pending write is no reason
    to refuse. Raises UnsupportedTableError, and what ``open_with`` raises.
    """
    for look in range(_LOOKS_MAX):
        begun = has_begun()
        try:
            return open_with(None if begun else ())
        except UnsupportedTableError:
            if begun or look + 1 == _LOOKS_MAX:
                raise
    raise AssertionError("unreachable")


def _check_columns(file: TableConfigFile, schema: TableSchema) -> None:
    """Raises UnsupportedTableError for a key, partition or ordering column of a type that is not served.

    It is checked before a table is created. If only an assigner found it, an operator would have to delete
    the new table.
    """
    KeyGenerator.for_table(schema, file.table.record_key, file.table.partition)
    if file.table.ordering is not None:
        OrderingField.of(schema, file.table.ordering)


def check_shards(file: TableConfigFile, shards: int) -> None:
    """Raises TableMismatchError when `table.index.shards` is given, and the index has another number."""
    wanted = file.table.index.shards
    if wanted == shards:
        return
    if given_shards(file):
        raise TableMismatchError(
            f"{file.file}: table.index.shards is {wanted}, the record index of {file.table.path} has "
            f"{shards} shards. If another engine built the index anew since, it has to get its former number "
            '(docs/hudi-beside.md, "A record index with another number of shards"). Else: the number counts '
            f"only when the index is made, so set it to {shards}, or leave it out"
        )


def given_shards(file: TableConfigFile) -> int:
    """`table.index.shards`, 0 if neither the file nor the environment gives it."""
    is_given = ("table", "index", "shards") in read_origins(file.file, os.environ)
    return file.table.index.shards if is_given else 0


def definition_of(file: TableConfigFile, schema: TableSchema) -> TableDefinition:
    """The table that the configuration asks for."""
    table = file.table
    return TableDefinition(
        name=table.name,
        table_type=_TYPES[table.type],
        record_key_fields=table.record_key,
        partition_fields=table.partition,
        ordering_fields=(table.ordering,) if table.ordering else (),
        hive_style_partitioning=is_true(file, HIVE_STYLE),
        url_encode_partitioning=is_true(file, URL_ENCODE),
        schema=schema.avro_json,
    )


def union_with_table(
    file: TableConfigFile, storage: Storage, config: TableConfig, configured: TableSchema
) -> TableSchema:
    """The union of the table's schema and ``configured``. Raises TableMismatchError that names the column."""
    existing = table_schema(storage, config, load_timeline(storage))
    if existing is None:
        return configured
    for name in fixed_columns(file):
        if existing.field(name).type != configured.field(name).type:
            raise TableMismatchError(
                f"table.schema has column {name} as {configured.field(name).type}, the table "
                f"{storage.base_uri} as {existing.field(name).type}: key, partition and ordering columns "
                "need the table's type"
            )
    try:
        return union(existing, configured)
    except SchemaError as error:
        raise TableMismatchError(
            f"table.schema does not fit the table {storage.base_uri}: {error}. Columns may be added, "
            "not changed"
        ) from error


def fixed_columns(file: TableConfigFile) -> list[str]:
    """Columns whose type decides keys, partition paths and ordering values: key, partition, ordering."""
    table = file.table
    return [*table.record_key, *table.partition, *((table.ordering,) if table.ordering else ())]


def check_same(file: TableConfigFile, config: TableConfig) -> None:
    """Raises TableMismatchError that names every setting for which the table has another value."""
    table = file.table
    pairs = {
        "table.type": (_TYPES[table.type].name.lower(), config.table_type.name.lower()),
        "table.record_key": (table.record_key, config.record_key_fields),
        "table.partition": (table.partition, config.partition_fields),
        "table.ordering": ((table.ordering,) if table.ordering else (), config.ordering_fields),
    }
    wrong = [
        f"{key}: {here!r}, but the table has {there!r}"
        for key, (here, there) in pairs.items()
        if here != there
    ]
    if wrong:
        raise TableMismatchError(
            f"{file.file} does not match the table {file.table.path}: {'; '.join(wrong)}"
        )
