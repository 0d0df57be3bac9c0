"""Makes record keys and partition paths of rows like Hudi's key generators (FORMAT.md, section 11).

Served generators: SIMPLE, COMPLEX, NON_PARTITION. The record index stores keys, so a key that differs from
Hudi's by one character makes a duplicate row. Therefore only types whose text was compared with Hudi 1.2.0
are served. Float and double are not: their text depends on the JVM's version.

A bad row never raises: it comes back with its reason, for the dead letters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.hudi_format.errors import HudiFormatError, UnsupportedTableError
from tidemark.hudi_format.partition_paths import blank_where, join_segments, partition_segments, path_errors
from tidemark.hudi_format.schema import SchemaError, TableSchema
from tidemark.hudi_format.table_config import KeyGeneratorType, TableConfig

BoolArray = npt.NDArray[np.bool_]
KeyOrWhyNot: TypeAlias = tuple[str | None, str | None, int | None]
"""A row's key, or the text of its error and a `KeyProblem`; the others None."""

NULL_KEY_PART: Final = "__null__"
EMPTY_KEY_PART: Final = "__empty__"
KEY_BYTES_DEFAULT: Final = 8 * 1024
# The record index's HFiles hold a key's length in a signed short.
KEY_BYTES_MAX: Final = 32767
_SERVED: Final = (KeyGeneratorType.SIMPLE, KeyGeneratorType.COMPLEX, KeyGeneratorType.NON_PARTITION)
_DATE_MIN, _DATE_MAX = -719162, 2932896


class KeyProblem(IntEnum):
    """What is wrong with a row that has no key: for code; `KeyColumns.error` says it to people."""

    UNREADABLE = 0
    """A value that has no text as Hudi writes it, a path that no folder can have, a damaged Kafka key."""
    EMPTY = 1
    """All key fields are null or empty."""
    TOO_LONG = 2


@dataclass(frozen=True, slots=True)
class KeyColumns:
    """One text per row, or the reason why it has none: `keys[i]` is null exactly where `error[i]` and
    `problem[i]` are not.

    ``problem``: int8, values of `KeyProblem`.
    """

    keys: pa.StringArray
    error: pa.StringArray
    problem: pa.Int8Array

    @classmethod
    def of_rows(cls, rows: Sequence[KeyOrWhyNot]) -> KeyColumns:
        """Builds the columns from one (key, error, problem) per row."""
        keys, errors, problems = zip(*rows, strict=True) if rows else ((), (), ())
        return cls(pa.array(keys, pa.string()), pa.array(errors, pa.string()), pa.array(problems, pa.int8()))

    def rows(self) -> list[KeyOrWhyNot]:
        """The inverse of `of_rows`."""
        columns = (self.keys, self.error, self.problem)
        return list(zip(*(column.to_pylist() for column in columns), strict=True))


@dataclass(frozen=True)
class KeyGenerator:
    """Makes record keys and partition paths of rows. `for_table` creates it, and checks fields and types."""

    schema: TableSchema
    kind: KeyGeneratorType
    record_key_fields: tuple[str, ...]
    partition_fields: tuple[str, ...]
    hive_style: bool
    url_encode: bool
    key_bytes_max: int

    @classmethod
    def for_table(
        cls,
        schema: TableSchema,
        record_key_fields: Sequence[str],
        partition_fields: Sequence[str] = (),
        *,
        kind: KeyGeneratorType | None = None,
        hive_style: bool = False,
        url_encode: bool = False,
        key_bytes_max: int = KEY_BYTES_DEFAULT,
    ) -> KeyGenerator:
        """The generator of a table; without `kind` the generator that Spark would choose for these fields.

        Raises `UnsupportedTableError` (generator or field type) and `SchemaError` (no such column).
        """
        checked = _checked_kind(kind, record_key_fields, partition_fields)
        if not 1 <= key_bytes_max <= KEY_BYTES_MAX:
            raise UnsupportedTableError(
                f"record key limit of {key_bytes_max} bytes",
                f"Use 1 to {KEY_BYTES_MAX}, the record index's limit.",
            )
        for error in field_errors(schema, record_key_fields, partition_fields):
            raise error
        fields = tuple(record_key_fields), tuple(partition_fields)
        return cls(schema, checked, *fields, hive_style, url_encode, key_bytes_max)

    @classmethod
    def from_table_config(
        cls, config: TableConfig, schema: TableSchema, key_bytes_max: int = KEY_BYTES_DEFAULT
    ) -> KeyGenerator:
        """The generator that a table's properties name. Raises as `for_table`."""
        return cls.for_table(
            schema,
            config.record_key_fields,
            config.partition_fields,
            kind=config.key_generator,
            hive_style=config.hive_style_partitioning,
            url_encode=config.url_encode_partitioning,
            key_bytes_max=key_bytes_max,
        )

    @property
    def names_parts(self) -> bool:
        """Whether a key has the form `field:value,…`. A COMPLEX key of a single field does in table
        version 9.
        """
        return self.kind is KeyGeneratorType.COMPLEX or len(self.record_key_fields) > 1

    def record_keys(self, rows: pa.Table) -> KeyColumns:
        """The record key of each row of `rows`, or why it has none.

        Raises `SchemaError` when a key column has another type than in the table's schema.
        """
        return self._keys([self._column(rows, name) for name in self.record_key_fields])

    def keys_of_columns(self, columns: Sequence[pa.Array]) -> KeyColumns:
        """The record keys of rows that are given by their key fields: one array per record key field."""
        return self._keys(list(columns))

    def _keys(self, columns: list[pa.Array]) -> KeyColumns:
        made = [value_texts(column) for column in columns]
        texts = [text for text, _ in made]
        if self.names_parts:
            keys, reason = self._named_keys(texts), "all record key fields are null or empty"
        else:
            keys = pc.fill_null(texts[0], "")
            reason = f"record key field {self.record_key_fields[0]} is null or empty"
        unreadable = [(error, KeyProblem.UNREADABLE) for _, error in made]
        empty = (_reason_where(_all_empty(texts), reason), KeyProblem.EMPTY)
        return _key_columns(keys, [*unreadable, empty, self._too_long(keys)])

    def partition_paths(self, rows: pa.Table) -> KeyColumns:
        """The partition path of each row, or why it has none; '' in a table without partitions.

        Raises `SchemaError` when a partition column has another type than in the table's schema.
        """
        if not self.partition_fields:
            return KeyColumns(
                pa.array([""], pa.string()).take(pa.array(np.zeros(rows.num_rows, np.int64))),
                pa.nulls(rows.num_rows, pa.string()),
                pa.nulls(rows.num_rows, pa.int8()),
            )
        segments, errors = [], []
        for name in self.partition_fields:
            text, error = value_texts(self._column(rows, name))
            segment, refusal = partition_segments(
                text,
                name,
                hive_style=self.hive_style,
                url_encode=self.url_encode,
                several_fields=len(self.partition_fields) > 1,
            )
            segments.append(segment)
            errors += [error, refusal]
        paths = join_segments(segments)
        unreadable = [(error, KeyProblem.UNREADABLE) for error in (*errors, path_errors(paths))]
        return _key_columns(paths, unreadable)

    def checked_keys(self, keys: pa.Array) -> KeyColumns:
        """Record keys that arrived as text (see `key_text`); null, empty and over-long ones get a reason."""
        filled = pc.fill_null(keys, "")
        empty = _reason_where(np.asarray(pc.equal(filled, "")), "the record key is null or empty")
        return _key_columns(filled, [(empty, KeyProblem.EMPTY), self._too_long(filled)])

    def _named_keys(self, texts: list[pa.Array]) -> pa.Array:
        parts = []
        for name, text in zip(self.record_key_fields, texts, strict=True):
            shown = pc.if_else(pc.equal(text, ""), EMPTY_KEY_PART, text)
            parts.append(pc.binary_join_element_wise(f"{name}:", pc.fill_null(shown, NULL_KEY_PART), ""))
        return parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, ",")

    def _too_long(self, keys: pa.Array) -> tuple[pa.Array, KeyProblem]:
        too_long = np.asarray(pc.greater(pc.binary_length(keys), self.key_bytes_max))
        reason = f"the record key is longer than {self.key_bytes_max} bytes"
        return _reason_where(too_long, reason), KeyProblem.TOO_LONG

    def _column(self, rows: pa.Table, name: str) -> pa.Array:
        column = _nested_column(rows, name)
        expected = self.schema.field(name).type
        if column.type != expected:
            raise SchemaError(f"column {name}: rows hold {column.type}, the table has {expected}")
        return column


def value_texts(column: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Java's text of each value (compared with Hudi 1.2.0 on Spark), and per row why it has none.

    Returns two string arrays of the column's length.
    """
    arrow = column.type
    errors = pa.nulls(len(column), pa.string())
    if pa.types.is_string(arrow):
        return column, errors
    if pa.types.is_timestamp(arrow):
        # Hudi's default is the number of microseconds, not a formatted time.
        return column.view(pa.int64()).cast(pa.string()), errors
    if pa.types.is_date(arrow):
        days = column.view(pa.int32())
        first, last = pa.scalar(_DATE_MIN, pa.int32()), pa.scalar(_DATE_MAX, pa.int32())
        outside = pc.fill_null(pc.or_(pc.less(days, first), pc.greater(days, last)), False)
        errors = _reason_where(
            np.asarray(outside), "a date outside the years 1 to 9999 cannot be part of a key or path"
        )
    return column.cast(pa.string()), errors


def _checked_kind(
    kind: KeyGeneratorType | None, record_key_fields: Sequence[str], partition_fields: Sequence[str]
) -> KeyGeneratorType:
    if not record_key_fields:
        raise UnsupportedTableError(
            "the table has no record key fields", "Name at least one record key field."
        )
    if kind is None:
        if not partition_fields:
            return KeyGeneratorType.NON_PARTITION
        single = len(record_key_fields) == 1 and len(partition_fields) == 1
        return KeyGeneratorType.SIMPLE if single else KeyGeneratorType.COMPLEX
    if kind not in _SERVED:
        served = ", ".join(kind.value for kind in _SERVED)
        raise UnsupportedTableError(
            f"hoodie.table.keygenerator.type={kind.value}",
            f"Only {served} are served; write this table with Spark.",
        )
    if kind is KeyGeneratorType.SIMPLE and (len(record_key_fields) != 1 or len(partition_fields) != 1):
        raise UnsupportedTableError(
            "hoodie.table.keygenerator.type=SIMPLE with several fields",
            "SIMPLE has one record key and one partition field; use COMPLEX.",
        )
    if (kind is KeyGeneratorType.NON_PARTITION) and partition_fields:
        raise UnsupportedTableError(
            f"hoodie.table.keygenerator.type=NON_PARTITION with partition fields {list(partition_fields)}",
            "Leave the partition fields out, or use SIMPLE or COMPLEX.",
        )
    return kind


def field_errors(
    schema: TableSchema, record_key_fields: Sequence[str], partition_fields: Sequence[str]
) -> Iterator[HudiFormatError]:
    """Yields an error for each field that cannot be part of the key or partition: no such column, or its
    type.
    """
    roles = {"record key": record_key_fields, "partition": partition_fields}
    for role, name in [(role, name) for role, names in roles.items() for name in names]:
        try:
            _check_key_type(name, schema.field(name).type, role)
        except HudiFormatError as error:
            yield error


def _check_key_type(name: str, arrow: pa.DataType, role: str) -> None:
    served = pa.types.is_string(arrow) or pa.types.is_int32(arrow) or pa.types.is_int64(arrow)
    served = (
        served or pa.types.is_boolean(arrow) or pa.types.is_date32(arrow) or pa.types.is_decimal128(arrow)
    )
    # Hudi on Spark reads a timestamp partition field back as null (or fails on a local one), because its path
    # is a number.
    timestamp = pa.types.is_timestamp(arrow) and arrow.unit == "us"
    if not served and not (timestamp and role == "record key"):
        also = " or timestamp-micros" if role == "record key" else ""
        raise UnsupportedTableError(
            f"{role} field {name} has type {arrow}, which is not served there",
            f"Use a string, int, long, boolean, date, decimal{also} column.",
        )


def _nested_column(rows: pa.Table, name: str) -> pa.Array:
    head, *rest = name.split(".")
    column = rows.column(head).combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    for part in rest:
        column = pc.struct_field(column, part)
    return column


def _all_empty(texts: list[pa.Array]) -> BoolArray:
    empty = np.ones(len(texts[0]), dtype=bool)
    for text in texts:
        empty &= np.asarray(pc.equal(pc.fill_null(text, ""), ""))
    return empty


def _reason_where(mask: BoolArray, reason: str) -> pa.Array:
    if not mask.any():
        return pa.nulls(len(mask), pa.string())
    return pc.if_else(pa.array(mask), pa.scalar(reason), pa.scalar(None, pa.string()))


def _key_columns(texts: pa.Array, errors: list[tuple[pa.Array, KeyProblem]]) -> KeyColumns:
    """The first error of a row is the one that is said: columns of `errors` in their order."""
    error, problem = pc.coalesce(*(column for column, _ in errors)), pa.nulls(len(texts), pa.int8())
    if error.null_count < len(error):
        problem = pc.coalesce(*(_marked(column, kind) for column, kind in errors))
    return KeyColumns(blank_where(texts, error), error, problem)


def _marked(error: pa.Array, kind: KeyProblem) -> pa.Array:
    return pc.if_else(error.is_valid(), pa.scalar(int(kind), pa.int8()), pa.scalar(None, pa.int8()))
