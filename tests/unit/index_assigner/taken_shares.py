"""How much of a record of the largest size is taken where the whole is refused, in as few tries as can be."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Final

QUARTER_LESS: Final = Fraction(3, 4)
# Format and kind -> the power of three quarters that is taken, as measured. One that is not so any more costs
# time.
_POWERS: Final = {
    ("json", "records of 8"): 4,
    ("json", "records of 40"): 10,
    ("json", "nulls for records of 200 in arrays"): 14,
    ("json", "nulls for records of 200 in maps"): 10,
    ("avro", "records of 1"): 6,
    ("avro", "texts"): 5,
    ("avro", "arrays"): 6,
    ("avro", "records of 8"): 4,
    ("avro", "records of 40"): 9,
    ("avro", "nulls for records of 200 in arrays"): 19,
    ("avro", "symbols"): 15,
    ("protobuf", "records of 1"): 5,
    ("protobuf", "records of 8"): 6,
    ("protobuf", "records of 40"): 11,
    ("protobuf", "unknown groups"): 3,
    ("debezium-json", "records of 8"): 4,
    ("debezium-avro", "records of 8"): 4,
}


def measured_share(refused: Callable[[Fraction], bool], format_: str, kind: str) -> Fraction | None:
    """The share that was taken when it was measured; None where a quarter more of it is taken now. Whether it
    is still taken itself has to be seen.
    """
    measured = _POWERS.get((format_, kind), 1)
    return QUARTER_LESS**measured if measured == 1 or refused(QUARTER_LESS ** (measured - 1)) else None


def taken_within_a_quarter(refused: Callable[[Fraction], bool], format_: str, kind: str) -> Fraction:
    """The share of a content that is taken for a row where all of it is refused: three quarters of it, or of
    that, and so on. ``refused``: whether a record with this share of it is.

    Each try costs, so few are made: the power that was measured if it is taken and the one before is refused;
    else the powers are doubled until one is taken, then halved in.
    """
    if (share := measured_share(refused, format_, kind)) is not None and not refused(share):
        return share
    least, most = 0, 1
    while refused(QUARTER_LESS**most):
        least, most = most, 2 * most
    while most - least > 1:
        between = (least + most) // 2
        least, most = (between, most) if refused(QUARTER_LESS**between) else (least, between)
    return QUARTER_LESS**most
