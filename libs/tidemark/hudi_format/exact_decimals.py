"""Makes Arrow columns of decimals, exactly or not at all.

Arrow 19 rescales a decimal without checking its exponent or an overflow. With an exponent below about -38 it
reads outside of its table of powers of ten (the result is 0 or another value, or the process crashes), and
digits and scale that exceed 38 places together may wrap around to another value that fits. Where that could
happen, this module rescales the value itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, Inexact, InvalidOperation
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.hudi_format.avro_types import DECIMAL_PRECISION_MAX

_UNSCALED_BYTES: Final = 16
# Values are converted in parts of this many: their texts take more memory than the values themselves.
_AT_ONCE: Final = 1 << 16


def exact_decimals(values: Sequence[Decimal | None], arrow: pa.Decimal128Type) -> pa.Array:
    """The values as a column of this type. Raises ValueError when a value is not finite or does not fit the
    type exactly: it has too many digits, or more decimal places that are not zero.
    """
    if len(values) <= _AT_ONCE:
        return _exact(values, arrow)
    parts = (values[first : first + _AT_ONCE] for first in range(0, len(values), _AT_ONCE))
    return pa.concat_arrays([_exact(part, arrow) for part in parts])


def exact_unscaled(numbers: Sequence[int | None], scale: int, arrow: pa.Decimal128Type) -> pa.Array:
    """Whole numbers in units of 10 ** -``scale`` as a column of this type.

    Raises ValueError when a number does not fit the type exactly.
    """
    larger, smaller = 10 ** max(arrow.scale - scale, 0), 10 ** max(scale - arrow.scale, 0)
    limit = 10**arrow.precision
    unscaled = bytearray()
    for number in numbers:
        whole, rest = divmod((number or 0) * larger, smaller)
        if rest or not -limit < whole < limit:
            raise ValueError(f"a number of scale {scale} does not fit {arrow} exactly")
        unscaled += whole.to_bytes(_UNSCALED_BYTES, "little", signed=True)
    valid = pa.array([number is not None for number in numbers], pa.bool_())
    column = pa.Array.from_buffers(arrow, len(numbers), [None, pa.py_buffer(bytes(unscaled))])
    return pc.if_else(valid, column, pa.scalar(None, arrow))


def _exact(values: Sequence[Decimal | None], arrow: pa.Decimal128Type) -> pa.Array:
    texts = pa.array([None if value is None else str(value) for value in values], pa.string())
    if not _read_right(texts, arrow.scale):
        texts = pa.array(_rescaled(values, arrow), pa.string())
    return texts.cast(arrow)


def _read_right(texts: pa.StringArray, scale: int) -> bool:
    """Whether Arrow reads all texts correctly: none has an exponent, and no digits can overflow."""
    lengths, points = pc.binary_length(texts), pc.find_substring(texts, ".")
    before_point = pc.if_else(pc.less(points, 0), lengths, points)
    longest, widest = (pc.max(counts).as_py() or 0 for counts in (lengths, before_point))
    if longest > DECIMAL_PRECISION_MAX or widest + scale > DECIMAL_PRECISION_MAX:
        return False
    return not pc.any(pc.match_substring(texts, "E")).as_py()


def _rescaled(values: Sequence[Decimal | None], arrow: pa.Decimal128Type) -> list[str | None]:
    exact = Context(
        prec=arrow.precision, Emin=MIN_EMIN, Emax=MAX_EMAX, clamp=0, traps=[Inexact, InvalidOperation]
    )
    unit = Decimal((0, (1,), -arrow.scale))
    try:
        # `quantize` leaves a NaN as it is; its text fails when Arrow reads it as a decimal.
        return [None if value is None else str(exact.quantize(value, unit)) for value in values]
    except (Inexact, InvalidOperation):
        raise ValueError(f"a number does not fit {arrow} exactly") from None
