"""Ordering values, which decide under EVENT_TIME_ORDERING which of two versions of a row is newer.

Every served type maps to int64 such that comparing two int64 gives the same result as Hudi's comparison of
the two values (Java's compareTo). So caches, tombstones and the index topic carry one number for any column
type. Types whose values do not fit (string, decimal, bytes …) are refused when the table is opened.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.hudi_format.errors import HudiFormatError, UnsupportedTableError
from tidemark.hudi_format.log_file.deletes import OrderingType
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.table_config import MergeMode, TableConfig

Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

# Means "no ordering value". It is below every value that a column can hold, except long's minimum.
NO_ORDERING: Final = int(np.iinfo(np.int64).min)
_SIGN_MASK: Final = np.int64(0x7FFFFFFFFFFFFFFF)


class OrderingError(HudiFormatError):
    """An ordering value is null or of another type; Spark could not read such a row (FORMAT.md, section
    7.5).
    """


@dataclass(frozen=True, slots=True)
class OrderingField:
    """The table's ordering field. Only a top-level column is served: an ordering value is one number a
    record.

    `delete_type` is the wrapper of an ordering value in a delete block. It has to match the type in which
    Spark holds the value. Hudi 1.2.0 on Spark was seen to write Int for int, Long for long and both
    timestamps, Float and Double, and to read Int for date (it fails to write deletes there). With any other
    wrapper, also the Date and TimestampMicros of the Avro schema, its read of the file group fails.
    """

    name: str
    arrow: pa.DataType
    delete_type: OrderingType

    @classmethod
    def of(cls, schema: TableSchema, name: str) -> OrderingField:
        """The ordering field `name` of a table.

        Raises `SchemaError` (no such column) and `UnsupportedTableError` (nested, several, or its type).
        """
        if "," in name:
            raise UnsupportedTableError(f"hoodie.table.ordering.fields={name}", "Use one ordering field.")
        if "." in name:
            raise UnsupportedTableError(f"ordering field {name} is nested", "Use a top-level column.")
        arrow = schema.field(name).type
        delete_type = _DELETE_TYPES.get(arrow)
        if delete_type is None:
            raise UnsupportedTableError(
                f"ordering field {name} has type {arrow}",
                "Use an int, long, float, double, timestamp-micros, local-timestamp-micros or date column.",
            )
        return cls(name, arrow, delete_type)

    def to_int64(self, column: pa.Array | pa.ChunkedArray) -> Int64Array:
        """The ordering values as int64, one per row. Raises `OrderingError` for a null or another type."""
        if column.null_count:
            raise OrderingError(
                f"ordering field {self.name}: {column.null_count} of {len(column)} values are null"
            )
        return self.to_int64_or_lowest(column)

    def to_int64_or_lowest(self, column: pa.Array | pa.ChunkedArray) -> Int64Array:
        """The ordering values as int64, with `NO_ORDERING` for nulls, which rows of other writers may hold.

        Raises `OrderingError` for another type.
        """
        if column.type != self.arrow:
            try:
                column = column.cast(self.arrow)
            except pa.ArrowException as error:
                raise OrderingError(
                    f"ordering field {self.name}: {column.type} is not {self.arrow}: {error}"
                ) from error
        missing = np.asarray(pc.is_null(column)) if column.null_count else None
        if pa.types.is_floating(self.arrow):
            ordering = _doubles_to_int64(np.asarray(pc.fill_null(column, 0.0)).astype(np.float64))
        else:
            storage = pa.int32() if self.arrow.bit_width == 32 else pa.int64()
            ordering = np.asarray(pc.fill_null(_as_storage(column, storage), 0)).astype(np.int64)
        if missing is not None:
            ordering[missing] = NO_ORDERING
        return ordering

    def from_int64(self, ordering: Int64Array) -> pa.Array:
        """The column values of ``ordering``: the inverse of `to_int64`, except that all NaNs become one
        NaN.
        """
        if pa.types.is_floating(self.arrow):
            doubles = _int64_to_doubles(ordering)
            return pa.array(doubles.astype(np.float32) if self.arrow == pa.float32() else doubles)
        if self.arrow.bit_width == 32:
            return pa.array(ordering.astype(np.int32)).view(self.arrow)
        return pa.array(ordering).view(self.arrow)


_DELETE_TYPES: Final[dict[pa.DataType, OrderingType]] = {
    pa.int32(): OrderingType.INT,
    pa.int64(): OrderingType.LONG,
    pa.float32(): OrderingType.FLOAT,
    pa.float64(): OrderingType.DOUBLE,
    pa.date32(): OrderingType.INT,
    pa.timestamp("us", "UTC"): OrderingType.LONG,
    pa.timestamp("us"): OrderingType.LONG,
}


def _as_storage(column: pa.Array | pa.ChunkedArray, storage: pa.DataType) -> pa.Array:
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return array if array.type == storage else array.view(storage)


def _doubles_to_int64(doubles: npt.NDArray[np.float64]) -> Int64Array:
    """Maps doubles to int64 in the order of Double.compare: -0.0 below 0.0, and one NaN above all others.

    The bits of positive doubles ascend with the value; those of negative ones descend, so all their bits but
    the sign are flipped. Example: -1.0 and -2.0 have the bits 0xBFF0… and 0xC000…, of which the second is the
    greater integer; flipped they are 0xC00F… and 0xBFFF…, and -2.0 is the lower one.
    """
    bits = np.where(np.isnan(doubles), np.float64("nan"), doubles).view(np.int64)
    return np.where(bits >= 0, bits, bits ^ _SIGN_MASK)


def _int64_to_doubles(ordering: Int64Array) -> npt.NDArray[np.float64]:
    return np.where(ordering >= 0, ordering, ordering ^ _SIGN_MASK).view(np.float64)


def table_ordering(config: TableConfig, schema: TableSchema) -> tuple[MergeMode, OrderingField | None]:
    """How rows of a table are merged, and its ordering field.

    The field is None when the table merges by commit time, even if its properties name one. Raises
    `UnsupportedTableError` for CUSTOM merging, and for event time without exactly one field of a served type.
    """
    if config.merge_mode is MergeMode.COMMIT_TIME_ORDERING:
        return config.merge_mode, None
    if config.merge_mode is not MergeMode.EVENT_TIME_ORDERING:
        raise UnsupportedTableError(
            f"hoodie.record.merge.mode={config.merge_mode.value}",
            "Only EVENT_TIME_ORDERING and COMMIT_TIME_ORDERING are served; write this table with Spark.",
        )
    if not config.ordering_fields:
        raise UnsupportedTableError(
            "EVENT_TIME_ORDERING without hoodie.table.ordering.fields",
            "Name the table's ordering field there.",
        )
    return config.merge_mode, OrderingField.of(schema, ",".join(config.ordering_fields))
