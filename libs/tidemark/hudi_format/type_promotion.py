"""Converts columns whose type another writer widened to the values that Hudi's readers see in older files.

Hudi lets a writer widen a column: int → long → float → double, and any of them → string. Older files keep the
narrow type, and every reader converts. Hudi's readers convert float → double by way of the decimal text (0.1
stays 0.1; the bare bits would give 0.10000000149) and print numbers as Java does (`1.0E10`). A rewrite that
converted otherwise would change values of rows that nobody touched.

All other conversions are Arrow's, and only those that lose nothing; decimals are rescaled in
`exact_decimals`, because Arrow may change their value.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.hudi_format.avro_types import SchemaError
from tidemark.hudi_format.exact_decimals import exact_decimals

_WIDENING: Final = (pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string())
# Java prints numbers in [10^-3, 10^7) without an exponent.
_PLAIN_MIN: Final = 1e-3
_PLAIN_MAX: Final = 1e7


def is_promotion(narrow: pa.DataType, wide: pa.DataType) -> bool:
    """Whether Hudi lets a column of type `narrow` become `wide`; False for equal types."""
    if narrow not in _WIDENING or wide not in _WIDENING:
        return False
    return _WIDENING.index(narrow) < _WIDENING.index(wide)


def cast_values(column: pa.Array | pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    """The column in the type `wanted`, promoted as Hudi's readers do it, inside records, lists and maps, too.

    A field that a nested record lacks becomes null; a field that `wanted` lacks is left out. Raises
    `SchemaError` (without the column's name) for a value that does not fit, and for types that cannot be
    converted.
    """
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    try:
        return pa.chunked_array([_cast(chunk, wanted) for chunk in chunks], wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise SchemaError(f"{column.type} does not fit {wanted}: {error}") from error


def _cast(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    have = array.type
    if have == wanted:
        return array
    if is_promotion(have, wanted):
        return _promoted(array, wanted)
    if pa.types.is_struct(have) and pa.types.is_struct(wanted):
        return _cast_struct(array, wanted)
    if pa.types.is_map(have) and pa.types.is_map(wanted):
        return _cast_map(array, wanted)
    if pa.types.is_list(have) and pa.types.is_list(wanted):
        return _cast_list(array, wanted)
    if pa.types.is_string(wanted) and not (_is_text(have) or pa.types.is_null(have)):
        raise pa.ArrowTypeError("no writer promotes values of this type to text")
    if _is_text(have) and not (_is_text(wanted) or pa.types.is_binary(wanted)):
        raise pa.ArrowTypeError("text is never promoted to another type")
    if pa.types.is_decimal128(have) and pa.types.is_decimal128(wanted):
        return _rescaled(array, wanted)
    return array.cast(wanted)


def _rescaled(array: pa.Decimal128Array, wanted: pa.Decimal128Type) -> pa.Array:
    """The decimals with another precision or scale; none changes its value."""
    try:
        return exact_decimals(array.to_pylist(), wanted)
    except ValueError as error:
        raise pa.ArrowInvalid(str(error)) from error


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_text(kind.value_type)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind))


def _promoted(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    if pa.types.is_floating(array.type):
        return _java_texts(array) if wanted == pa.string() else _through_text(array)
    # Java rounds whole numbers to the nearest float; Arrow's checked cast would refuse those that need it.
    return array.cast(wanted, safe=not pa.types.is_floating(wanted))


def _through_text(array: pa.Array) -> pa.Array:
    """The doubles that the decimal texts of the floats name; one conversion per distinct value."""
    # 0.5, 2.0, 0.5 are the distinct values 0.5, 2.0 at 0, 1, 0: two conversions, taken three times.
    distinct = array.dictionary_encode()
    values = distinct.dictionary.to_numpy(zero_copy_only=False)
    doubles = [float(java_text(value)) for value in values]
    return pa.array(doubles, pa.float64()).take(distinct.indices)


def _java_texts(array: pa.Array) -> pa.Array:
    """The texts of Java's Float.toString and Double.toString; one conversion per distinct value."""
    distinct = array.dictionary_encode()
    values = distinct.dictionary.to_numpy(zero_copy_only=False)
    return pa.array([java_text(value) for value in values], pa.string()).take(distinct.indices)


def java_text(number: np.float32 | np.float64) -> str:
    """A float32 or float64 as Java 19 and later print it: with at least one decimal, and with an exponent
    outside [10^-3, 10^7).

    Java before 19 prints more digits than needed for about 2 % of the floats above 10^7.
    """
    if np.isnan(number):
        return "NaN"
    if np.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    if number == 0 or _PLAIN_MIN <= abs(float(number)) < _PLAIN_MAX:
        return np.format_float_positional(number, unique=True, trim="0")
    text = np.format_float_scientific(number, unique=True, trim="0", exp_digits=1)
    two_digits = f"{float(number):.1e}"
    # Java prints at least two digits, the nearest two: 4.9E-324, although one digit (5E-324) would be enough.
    if type(number)(two_digits) == number:
        text = two_digits
    digits, _, exponent = text.partition("e")
    return f"{digits}E{int(exponent)}"


def _cast_struct(array: pa.StructArray, wanted: pa.DataType) -> pa.Array:
    fields = []
    for field in wanted:
        index = array.type.get_field_index(field.name)
        if index >= 0:
            # `flatten` would turn the values of null records into nulls; the mask below does that once.
            fields.append(_cast(array.field(index), field.type))
        else:
            fields.append(pa.nulls(len(array), field.type))
    return pa.StructArray.from_arrays(fields, fields=list(wanted), mask=array.is_null())


def _cast_list(array: pa.ListArray, wanted: pa.DataType) -> pa.Array:
    offsets, values = _whole(array)
    items = _cast(values, wanted.value_type)
    return pa.ListArray.from_arrays(offsets, items, type=wanted, mask=_mask(array))


def _cast_map(array: pa.MapArray, wanted: pa.DataType) -> pa.Array:
    if array.offset or array.null_count:
        array = pa.concat_arrays([array])
    keys, items = _cast(array.keys, wanted.key_type), _cast(array.items, wanted.item_type)
    entries = pa.MapArray.from_arrays(array.offsets, keys, items, type=wanted)
    if not array.null_count:
        return entries
    # The entries have no nulls yet; taking at null positions makes them: m0, null, m2 come from 0, null, 2.
    positions = pa.array(
        np.arange(len(array)), pa.int64(), mask=array.is_null().to_numpy(zero_copy_only=False)
    )
    return entries.take(positions)


def _whole(array: pa.ListArray) -> tuple[pa.Array, pa.Array]:
    """The list offsets starting at 0, and the values that they point into.

    A slice of a list array keeps the offsets of the whole array: 5, 7, 9 become 0, 2, 4, and the values begin
    at the former position 5.
    """
    offsets = array.offsets
    start = offsets[0].as_py() if len(offsets) else 0
    values = array.values.slice(start, (offsets[-1].as_py() if len(offsets) else 0) - start)
    return pc.subtract(offsets, pa.scalar(start, offsets.type)), values


def _mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None
