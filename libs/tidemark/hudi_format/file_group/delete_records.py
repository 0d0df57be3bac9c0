"""Encodes and decodes DELETE log blocks of data file groups: keys with typed ordering values (FORMAT.md,
sections 5.5 and 7.4).

Hudi reads two ordering values as "delete whatever is stored": null, and Int 0, which its DELETE operation
writes. The ordering value 0 of an int or date column has the same bytes, so such a delete is unconditional,
too.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from tidemark.hudi_format.errors import CorruptFileError, UnsupportedTableError
from tidemark.hudi_format.file_group.changes import Deletes
from tidemark.hudi_format.log_file.deletes import DeleteTarget, OrderingType, decode_deletes, encode_deletes
from tidemark.hudi_format.ordering import NO_ORDERING, Int64Array, OrderingError, OrderingField

_NUMBERS: Final = {
    OrderingType.INT: pa.int32(),
    OrderingType.LONG: pa.int64(),
    OrderingType.FLOAT: pa.float32(),
    OrderingType.DOUBLE: pa.float64(),
    OrderingType.DATE: pa.int32(),
    OrderingType.TIMESTAMP_MICROS: pa.int64(),
}


def delete_block_contents(
    deletes: Deletes, partition_path: str, ordering: OrderingField | None
) -> list[bytes]:
    """The contents of at most two DELETE blocks: first the deletes with ordering values, then the
    unconditional ones.

    hudi-rs refuses a block that mixes the two. Raises `OrderingError` for ordering values without an ordering
    field.
    """
    contents = []
    typed = ~deletes.unconditional
    if typed.any():
        if ordering is None:
            raise OrderingError("deletes carry ordering values, but the table has no ordering field")
        values = deletes.ordering[typed]
        if pa.types.is_floating(ordering.arrow):
            values = ordering.from_int64(values).to_numpy()
        keys = deletes.keys.filter(pa.array(typed))
        contents.append(encode_deletes(keys, partition_path, ordering.delete_type, values))
    if not typed.all():
        contents.append(encode_deletes(deletes.keys.filter(pa.array(deletes.unconditional)), partition_path))
    return contents


def read_deletes(content: bytes | memoryview, ordering: OrderingField | None, path: str) -> Deletes:
    """The delete records of one block. Without an ordering field all of them are unconditional.

    Raises `CorruptFileError`, and `UnsupportedTableError` for ordering values that do not fit the
    ordering field.
    """
    records = decode_deletes(content, path)
    if ordering is None or not len(records):
        return Deletes.without_ordering(records.keys)
    targets = _ordering_of_targets(records.targets, ordering, path)
    return Deletes.with_ordering(records.keys, targets[records.target_ids])


def _ordering_of_targets(targets: tuple[DeleteTarget, ...], ordering: OrderingField, path: str) -> Int64Array:
    """The ordering values of distinct targets, with one conversion per type that occurs; normally that is
    one.
    """
    values = np.full(len(targets), NO_ORDERING, np.int64)
    for kind in {target.ordering_type for target in targets} - {OrderingType.NULL}:
        if kind not in _NUMBERS:
            raise UnsupportedTableError(
                f"{path}: delete block with ordering values of type {kind.name}, "
                f"the ordering field {ordering.name} is {ordering.arrow}",
                "Compact this file group with Spark first.",
            )
        rows = [number for number, target in enumerate(targets) if target.ordering_type is kind]
        numbers = [targets[row].ordering_value for row in rows]
        values[rows] = _converted(pa.array(numbers, _NUMBERS[kind]), ordering, path)
        if kind is OrderingType.INT:
            values[[row for row, number in zip(rows, numbers, strict=True) if number == 0]] = NO_ORDERING
    return values


def _converted(numbers: pa.Array, ordering: OrderingField, path: str) -> Int64Array:
    storage = ordering.arrow
    if pa.types.is_temporal(storage):
        storage = pa.int32() if storage.bit_width == 32 else pa.int64()
    try:
        cast = numbers.cast(storage)
    except pa.ArrowException as error:
        raise CorruptFileError(
            f"{path}: delete block's ordering values do not fit field {ordering.name}: {error}"
        ) from error
    return ordering.to_int64(cast if storage == ordering.arrow else cast.view(ordering.arrow))
