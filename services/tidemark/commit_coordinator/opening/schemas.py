"""Schemas by fingerprint: a process registers its schema when it joins; each plan unites them.

Before each plan the coordinator takes up what other writers did to the table's schema. Their columns stay in
the schema that we write, as nullable columns, and are null in the rows that we upsert: a row is written
whole, and we know no value of a column that `table.schema` lacks. If a change cannot be taken up, tagging
stops before anything is written, and the error names the commit or the column.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Sequence

from tidemark.commit_coordinator.commit.agreement import EPOCH_KEY
from tidemark.commit_coordinator.errors import CoordinatorError
from tidemark.commit_coordinator.opening.table_open import fixed_columns
from tidemark.config import TableConfigFile
from tidemark.errors import ErrorKind
from tidemark.hudi_format.errors import (
    AlreadyExistsError,
    CorruptFileError,
    FileMissingError,
    UnsupportedTableError,
)
from tidemark.hudi_format.schema import SchemaError, TableSchema, newer_union, union
from tidemark.hudi_format.storage.base import Storage, join_path
from tidemark.hudi_format.storage.documents import ROOT, read_text
from tidemark.hudi_format.table_schema import CommitSchema, SchemaChanges
from tidemark.hudi_format.timeline import Timeline


class IncompatibleSchemaError(CoordinatorError):
    """A joining process's schema does not fit the table's."""

    kind = ErrorKind.INVALID


class SchemaRegistry:
    """The schemas of one table; thread-safe. Each is stored in the table's folder, for successors.

    ``fixed``: columns whose type no writer may change (key, partition, ordering).
    """

    def __init__(
        self, storage: Storage, table: str, current: TableSchema, fixed: Collection[str] = ()
    ) -> None:
        self._storage = storage
        self._table = table
        self._fixed = fixed
        self._lock = threading.Lock()
        self._changes = SchemaChanges(storage, table, EPOCH_KEY)
        self._current = current
        self._filled: set[str] = set()
        # The union of all schemas that a transaction may name. A schema that does not fit it is refused when
        # its process joins, so no plan meets two schemas that cannot be united.
        self._known = current

    @classmethod
    def of(cls, config: TableConfigFile, storage: Storage, current: TableSchema) -> SchemaRegistry:
        """The registry of the configured table."""
        return cls(storage, config.table.name, current, fixed_columns(config))

    def register(self, avro_json: str) -> str:
        """Stores the schema, returns its fingerprint. Raises IncompatibleSchemaError naming the column."""
        try:
            schema = TableSchema.from_avro(avro_json, self._table)
            with self._lock:
                self._known = union(self._known, schema)
                self._filled.update(schema.arrow.names)
        except SchemaError as error:
            raise IncompatibleSchemaError(
                f"table.schema does not fit the table, or what another process registered: {error}"
            ) from error
        try:
            self._storage.create(self._path(schema.fingerprint), schema.avro_json.encode())
        except AlreadyExistsError:
            return schema.fingerprint
        return schema.fingerprint

    def resume(self, fingerprints: Iterable[str]) -> None:
        """Takes up the schemas that uncommitted transactions name; call it before any process joins."""
        with self._lock:
            for fingerprint in fingerprints:
                self._known = union(self._known, self._load(fingerprint))

    def united(self, fingerprints: Sequence[str], timeline: Timeline) -> str:
        """The union of the table's schema, of these schemas and of other writers' commits, as Avro JSON.

        It is the table's schema from now on. Raises UnsupportedTableError that names the commit or column
        that cannot be taken up.
        """
        with self._lock:
            try:
                for change in self._changes.look(timeline):
                    self._take_up(change)
                    self._known = newer_union(self._current, self._known)
                for fingerprint in fingerprints:
                    self._current = union(self._current, self._load(fingerprint))
            except SchemaError as error:
                raise UnsupportedTableError(
                    f"the table's schema and table.schema do not go together any more: {error}",
                    "Make table.schema and the table agree (a column of another name, or the type that "
                    "the table has)",
                ) from error
            return self._current.avro_json

    def unfilled_columns(self) -> list[str]:
        """The table's columns that no joined process has in its schema; empty before the first has joined."""
        with self._lock:
            return [name for name in self._current.arrow.names if self._filled and name not in self._filled]

    def _take_up(self, change: CommitSchema) -> None:
        if change.is_own:
            self._current = newer_union(change.schema, self._current)
            return
        for name in self._fixed:
            theirs, ours = change.schema.field(name).type, self._current.field(name).type
            if theirs != ours:
                raise SchemaError(
                    f"{change.instant.file_name} of another writer changed the type of {name}, a key, "
                    f"partition or ordering column, from {ours} to {theirs}"
                )
        try:
            self._current = newer_union(change.schema, self._current)
        except SchemaError as error:
            raise SchemaError(f"{change.instant.file_name} of another writer: {error}") from error

    def _load(self, fingerprint: str) -> TableSchema:
        path = self._path(fingerprint)
        try:
            return TableSchema.from_avro(read_text(self._storage, path), self._table)
        except FileMissingError as error:
            raise IncompatibleSchemaError(f"{path} is gone: a transaction names that schema") from error
        except SchemaError as error:
            # `register` stored only what is a schema, so the file has changed since.
            raise CorruptFileError(f"{self._storage.base_uri}/{path} is damaged: {error}") from error

    def _path(self, fingerprint: str) -> str:
        return join_path(ROOT, "schemas", f"{fingerprint}.avsc")
