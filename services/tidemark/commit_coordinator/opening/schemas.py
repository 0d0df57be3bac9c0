"""Schemas by fingerprint: registered when a process joins, united when an epoch is planned.

What other writers do to the table's schema is taken up before each plan: their columns stay in what we write,
nullable, and null in the rows that we upsert. A row is written whole: of a column that `table.schema` lacks
we know no value. What cannot be taken up stops the tagging, by name, before anything is written.
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
    """Thread-safe; every schema is kept with the table, so that a successor knows it too.

    ``fixed``: columns whose type may not change under us (key, partition, ordering).
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
        # With the columns of every schema that a transaction may name: no plan finds two that do not fit.
        self._known = current

    @classmethod
    def of(cls, config: TableConfigFile, storage: Storage, current: TableSchema) -> SchemaRegistry:
        """The registry of the configured table."""
        return cls(storage, config.table.name, current, fixed_columns(config))

    def register(self, avro_json: str) -> str:
        """The fingerprint of the schema. Raises IncompatibleSchemaError naming what does not fit."""
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
        """What counting transactions name that no epoch covers yet; call it before anything registers."""
        with self._lock:
            for fingerprint in fingerprints:
                self._known = union(self._known, self._load(fingerprint))

    def united(self, fingerprints: Sequence[str], timeline: Timeline) -> str:
        """Avro JSON of the table's schema, with the columns of these and of what other writers committed; it
        is the table's from now on.

        Raises UnsupportedTableError naming the commit or column that cannot be taken up.
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
                    "the table "
                    "has)",
                ) from error
            return self._current.avro_json

    def unfilled_columns(self) -> list[str]:
        """Columns of the table that the schema of no process has which joined; none before the first."""
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
                    f"partition or "
                    f"ordering column, from {ours} to {theirs}"
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
            # It was one when it was written here.
            raise CorruptFileError(f"{self._storage.base_uri}/{path} is damaged: {error}") from error

    def _path(self, fingerprint: str) -> str:
        return join_path(ROOT, "schemas", f"{fingerprint}.avsc")
