"""A table's schema: its user columns, as Arrow and as the Avro JSON that Hudi keeps in the timeline and in
log files.

Types served (FORMAT.md, section 4.5): string, int, long, float, double, boolean, bytes, date,
timestamp-micros, local-timestamp-micros, timestamp-millis, decimal (fixed or bytes; written as fixed),
array, map with string keys, nested record. Any other type is a `SchemaError` that names the column.

Invariants: meta columns are never part of a `TableSchema`; the Avro text is canonical, so equal schemas have
equal text and an equal fingerprint; nullable columns are ["null", T] with default null.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Final

import pyarrow as pa

from tidemark.hudi_format.avro_types import (
    SchemaError,
    checked_names,
    field_from_avro,
    field_to_avro,
    is_avro_name,
    sanitized_name,
    type_to_avro,
)
from tidemark.hudi_format.type_promotion import cast_values, is_promotion

__all__ = [
    "IS_DELETED_FIELD",
    "META_COLUMNS",
    "META_SCHEMA",
    "OPERATION_FIELD",
    "SchemaError",
    "TableSchema",
    "cast_rows",
    "left_out",
    "newer_union",
    "union",
]

META_COLUMNS: Final = (
    "_hoodie_commit_time",
    "_hoodie_commit_seqno",
    "_hoodie_record_key",
    "_hoodie_partition_path",
    "_hoodie_file_name",
)
META_SCHEMA: Final = pa.schema([pa.field(name, pa.string()) for name in META_COLUMNS])
IS_DELETED_FIELD: Final = "_hoodie_is_deleted"
OPERATION_FIELD: Final = "_hoodie_operation"
_RECORD_SUFFIX: Final = "_record"


@dataclass(frozen=True)
class TableSchema:
    """The user columns of one table. `from_avro` and `from_arrow` create it and check names and types."""

    table_name: str
    arrow: pa.Schema

    @classmethod
    def from_avro(cls, avro_json: str, table_name: str | None = None) -> TableSchema:
        """Reads an Avro record schema, and leaves out its meta columns.

        Without `table_name` the table's name comes from the record's name (`<table>_record`, or the name as
        it is). Raises `SchemaError`.
        """
        return _of_avro(avro_json, table_name)

    @classmethod
    def from_arrow(cls, table_name: str, arrow: pa.Schema) -> TableSchema:
        """The schema with these user columns. Raises `SchemaError` for a name or type that cannot be
        stored.
        """
        if not table_name:
            raise SchemaError("the schema needs a table name: give one, or name the Avro record")
        if not len(arrow):
            raise SchemaError(f"the schema of table {table_name} has no columns")
        checked_names(arrow.names)
        for field in arrow:
            if not is_avro_name(field.name):
                raise SchemaError(
                    f"column {field.name!r}: the name is no Avro name; use letters, digits and '_'"
                )
            if field.name.startswith("_hoodie_") and field.name != IS_DELETED_FIELD:
                raise SchemaError(f"column {field.name!r}: names that start with _hoodie_ are Hudi's own")
            type_to_avro(field.type, field.name, "")
        return cls(table_name, pa.schema(list(arrow)))

    @cached_property
    def arrow_with_meta(self) -> pa.Schema:
        """The five meta columns, then the user columns: the columns of base files and data blocks."""
        return pa.schema([*META_SCHEMA, *self.arrow])

    @cached_property
    def arrow_with_operation(self) -> pa.Schema:
        """The columns of `arrow_with_meta`, with `_hoodie_operation` after the meta columns.

        Base files of writers with `hoodie.allow.operation.metadata.field` have these columns.
        """
        return pa.schema([*META_SCHEMA, pa.field(OPERATION_FIELD, pa.string()), *self.arrow])

    @cached_property
    def avro_json(self) -> str:
        """Canonical Avro JSON without meta columns: the `schema` entry of a commit's extra metadata."""
        return self._avro_json(self.arrow)

    @cached_property
    def avro_with_meta_json(self) -> str:
        """Canonical Avro JSON with meta columns: the SCHEMA header of log blocks, and part of a base file's
        footer.
        """
        return self._avro_json(self.arrow_with_meta)

    @cached_property
    def avro_with_operation_json(self) -> str:
        """Canonical Avro JSON of the columns in `arrow_with_operation`."""
        return self._avro_json(self.arrow_with_operation)

    @cached_property
    def fingerprint(self) -> str:
        """32 hex digits, equal for equal schemas of one table (the first half of the SHA-256 of
        `avro_json`).
        """
        return hashlib.sha256(self.avro_json.encode()).hexdigest()[:32]

    def field(self, name: str) -> pa.Field:
        """The column `name`; a dotted name leads into nested records. Raises `SchemaError` when there is
        none.
        """
        head, *rest = name.split(".")
        index = self.arrow.get_field_index(head)
        if index < 0:
            raise SchemaError(
                f"column {name}: table {self.table_name} has no such column; it has {self.arrow.names}"
            )
        field = self.arrow.field(index)
        for part in rest:
            index = field.type.get_field_index(part) if pa.types.is_struct(field.type) else -1
            if index < 0:
                raise SchemaError(f"column {name}: {field.name!r} ({field.type}) has no field {part!r}")
            field = field.type.field(index)
        return field

    def _avro_json(self, arrow: pa.Schema) -> str:
        table = sanitized_name(self.table_name)
        record, namespace = f"{table}{_RECORD_SUFFIX}", f"hoodie.{table}"
        fields = [field_to_avro(field, f"{namespace}.{record}") for field in arrow]
        avro = {"type": "record", "name": record, "namespace": namespace, "fields": fields}
        return json.dumps(avro, separators=(",", ":"))


_HIDDEN: Final = {*META_COLUMNS, OPERATION_FIELD}


@lru_cache(maxsize=8)
def _of_avro(avro_json: str, table_name: str | None) -> TableSchema:
    """Every attempt, task and log block brings the text along, and it hardly ever changes."""
    try:
        avro = json.loads(avro_json)
    except ValueError as error:
        raise SchemaError(f"the schema is no JSON: {error}") from error
    if not isinstance(avro, dict) or avro.get("type") != "record" or not isinstance(avro.get("fields"), list):
        raise SchemaError("the schema has to be an Avro record with a list of fields")
    name = table_name or str(avro.get("name", "")).rpartition(".")[2].removesuffix(_RECORD_SUFFIX)
    fields = [
        field_from_avro(field, _name_in(field)) for field in avro["fields"] if _name_in(field) not in _HIDDEN
    ]
    return TableSchema.from_arrow(name, pa.schema(fields))


def _name_in(avro_field: Any) -> str:
    return str(avro_field.get("name", "?")) if isinstance(avro_field, dict) else "?"


def union(first: TableSchema, second: TableSchema) -> TableSchema:
    """The schema that holds rows of both: the columns of `first`, then those that only `second` has.

    A column that only one of them has is nullable. Nested records are united field by field. `first` is the
    table's schema: where its type is wider (long, when `second` has int) that type stays, and rows of
    `second` are promoted. A wider type in `second`, or any other change, is refused: we never widen a column,
    because then every older base file would depend on each reader's promotion. Raises `SchemaError`.
    """
    fields = _Union(may_widen=False).fields(list(first.arrow), list(second.arrow), "")
    return TableSchema.from_arrow(first.table_name, pa.schema(fields))


def newer_union(newer: TableSchema, older: TableSchema) -> TableSchema:
    """Unites the schemas of two commits of the table, like `union`, but keeps the wider type of each column,
    whichever schema has it. Raises `SchemaError`.
    """
    fields = _Union(may_widen=True).fields(list(newer.arrow), list(older.arrow), "")
    return TableSchema.from_arrow(newer.table_name, pa.schema(fields))


@dataclass(frozen=True)
class _Union:
    """How two schemas are united. `may_widen`: a type of the second one may be wider than that of the
    first.
    """

    may_widen: bool

    def fields(self, first: list[pa.Field], second: list[pa.Field], path: str) -> list[pa.Field]:
        others = {field.name: field for field in second}
        fields = []
        for field in first:
            other = others.pop(field.name, None)
            if other is None:
                fields.append(field.with_nullable(True))
            else:
                arrow = self._type(field.type, other.type, f"{path}{field.name}")
                fields.append(pa.field(field.name, arrow, nullable=field.nullable or other.nullable))
        return fields + [field.with_nullable(True) for field in second if field.name in others]

    def _type(self, first: pa.DataType, second: pa.DataType, path: str) -> pa.DataType:
        if first == second or is_promotion(second, first):
            return first
        if self.may_widen and is_promotion(first, second):
            return second
        if pa.types.is_struct(first) and pa.types.is_struct(second):
            return pa.struct(self.fields(list(first), list(second), f"{path}."))
        if pa.types.is_list(first) and pa.types.is_list(second):
            return pa.list_(self._value(first.value_field, second.value_field, f"{path}.element"))
        if pa.types.is_map(first) and pa.types.is_map(second):
            item = self._value(first.item_field, second.item_field, f"{path}.value")
            return pa.map_(first.key_field, item)
        raise SchemaError(
            f"column {path}: its type changed from {first} to {second}; add a column under a new name instead"
        )

    def _value(self, first: pa.Field, second: pa.Field, path: str) -> pa.Field:
        arrow = self._type(first.type, second.type, path)
        return pa.field(first.name, arrow, nullable=first.nullable or second.nullable)


def left_out(stored: pa.Schema, wanted: pa.Schema) -> list[str]:
    """The columns that a file with the schema `stored` would lose if its rows were rewritten with `wanted`.

    These are columns and nested fields (dotted) that `wanted` lacks, and those whose type it would narrow, as
    `name (from → to)`. A promoted type or an added column loses nothing. Meta columns are ignored, because
    Hudi's own code takes care of them.
    """
    fields = [field for field in stored if field.name not in _HIDDEN]
    return _left_out(fields, list(wanted), "")


def _left_out(stored: list[pa.Field], wanted: list[pa.Field], path: str) -> list[str]:
    kinds = {field.name: field.type for field in wanted}
    lost: list[str] = []
    for field in stored:
        name = f"{path}{field.name}"
        lost += [name] if field.name not in kinds else _narrowed(field.type, kinds[field.name], name)
    return lost


def _narrowed(stored: pa.DataType, wanted: pa.DataType, name: str) -> list[str]:
    if pa.types.is_struct(stored) and pa.types.is_struct(wanted):
        return _left_out(list(stored), list(wanted), f"{name}.")
    if pa.types.is_list(stored) and pa.types.is_list(wanted):
        return _narrowed(stored.value_type, wanted.value_type, f"{name}.element")
    if pa.types.is_map(stored) and pa.types.is_map(wanted):
        return _narrowed(stored.item_type, wanted.item_type, f"{name}.value")
    return [f"{name} ({stored} → {wanted})"] if is_promotion(wanted, stored) else []


def cast_rows(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """`rows` with exactly the columns of `schema`, in its order; other columns are left out.

    A column that `rows` lacks becomes null. Types are promoted as Hudi's readers do it (`type_promotion`),
    and cast where no value changes (a 2-level list to a 3-level one, a nested record that gained nullable
    fields). Raises `SchemaError` when a value does not fit, or a column that must not be null is missing or
    has nulls.
    """
    if rows.schema.equals(schema):
        return rows
    columns = [_cast_column(rows, field) for field in schema]
    return pa.table(columns, schema=schema) if columns else rows.select([])


def _cast_column(rows: pa.Table, field: pa.Field) -> pa.ChunkedArray:
    if field.name in rows.column_names:
        column = rows.column(field.name)
    else:
        column = pa.chunked_array([pa.nulls(rows.num_rows, field.type)])
    if column.type != field.type:
        try:
            column = cast_values(column, field.type)
        except SchemaError as error:
            raise SchemaError(f"column {field.name}: {error}") from error
    if not field.nullable and column.null_count:
        raise SchemaError(
            f"column {field.name}: {column.null_count} rows have no value, and it must not be null"
        )
    return column
