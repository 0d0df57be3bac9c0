"""Schemas by fingerprint: registered when a process joins, united when an epoch is planned."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

from commit_coordinator.errors import CoordinatorError
from commit_coordinator.staging import ROOT
from hudi_format.errors import AlreadyExistsError, FileMissingError
from hudi_format.schema import SchemaError, TableSchema, union
from hudi_format.storage.base import Storage, join_path
from stream_runtime.errors import ErrorKind


class IncompatibleSchemaError(CoordinatorError):
    """A joining process's schema does not fit the table's."""

    kind = ErrorKind.INVALID


class SchemaRegistry:
    """Thread-safe; every schema is kept with the table, so that a successor knows it too."""

    def __init__(self, storage: Storage, table: str, current: TableSchema) -> None:
        self._storage = storage
        self._table = table
        self._lock = threading.Lock()
        self._current = current
        # With the columns of every schema that a transaction may name: no plan finds two that do not fit.
        self._known = current

    def register(self, avro_json: str) -> str:
        """The fingerprint of the schema. Raises IncompatibleSchemaError naming what does not fit."""
        try:
            schema = TableSchema.from_avro(avro_json, self._table)
            with self._lock:
                self._known = union(self._known, schema)
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

    def united(self, fingerprints: Sequence[str]) -> str:
        """Avro JSON of the table's schema with the columns of these; it is the table's from now on."""
        with self._lock:
            for fingerprint in fingerprints:
                self._current = union(self._current, self._load(fingerprint))
            return self._current.avro_json

    def _load(self, fingerprint: str) -> TableSchema:
        path = self._path(fingerprint)
        try:
            text = self._storage.read(path).decode()
        except FileMissingError as error:
            raise IncompatibleSchemaError(f"{path} is gone: a transaction names that schema") from error
        return TableSchema.from_avro(text, self._table)

    def _path(self, fingerprint: str) -> str:
        return join_path(ROOT, "schemas", f"{fingerprint}.avsc")
