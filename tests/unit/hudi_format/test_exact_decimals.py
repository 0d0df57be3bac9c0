"""A decimal becomes exactly itself or an error, whatever its exponent and its digits are."""

from __future__ import annotations

import time
import tracemalloc
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidemark.hudi_format.exact_decimals import exact_decimals, exact_unscaled

POWERS = st.integers(0, 17).map(lambda power: 10**power)
EXPONENTS = st.integers(-80, 80) | st.tuples(POWERS, st.sampled_from([-1, 1])).map(
    lambda each: each[0] * each[1]
)
DIGITS = st.integers(0, 10**40) | st.tuples(st.integers(0, 999), st.integers(0, 45)).map(
    lambda e: e[0] * 10 ** e[1]
)
TYPES = st.integers(1, 38).flatmap(lambda p: st.tuples(st.just(p), st.integers(0, p)))


def fits(digits: int, exponent: int, precision: int, scale: int) -> bool:
    """By counting zeros: no power of ten is made."""
    if not digits:
        return True
    text = str(digits)
    significant = text.rstrip("0")
    exponent += len(text) - len(significant)
    return exponent >= -scale and len(significant) + exponent + scale <= precision


@given(DIGITS, st.booleans(), EXPONENTS, TYPES)
@example(5, False, -41, (10, 2))
@example(5, False, -656, (10, 2))
@example(1, False, -9_999_999, (10, 2))
@example(0, False, -9_999_999, (10, 2))
@example(0, True, 10**17, (38, 38))
@example(1, False, 400_000_000, (38, 0))
@example(123456789012345678901234567890, False, -414, (10, 2))
@example(16108455515701850823_05583465878870, False, -14, (38, 27))
@example(39727211648389296898904602750109468_4000, False, -27, (37, 24))
def test_a_decimal_is_exactly_itself_or_refused(
    digits: int, negative: bool, exponent: int, kind: tuple[int, int]
) -> None:
    value = Decimal((int(negative), tuple(map(int, str(digits))), exponent))
    arrow = pa.decimal128(*kind)
    if not fits(digits, exponent, *kind):
        with pytest.raises(ValueError):
            exact_decimals([Decimal(0), value, None], arrow)
        return
    column = exact_decimals([Decimal(0), value, None], arrow)
    column.validate(full=True)
    assert column.type == arrow
    assert column.to_pylist() == [0, value, None]


@pytest.mark.parametrize("text", ["NaN", "-NaN", "sNaN", "NaN123", "Infinity", "-Infinity"])
@pytest.mark.parametrize("beside", ["1", "1E-1"])
def test_what_is_no_number_is_refused(text: str, beside: str) -> None:
    with pytest.raises(ValueError):
        exact_decimals([Decimal(beside), Decimal(text)], pa.decimal128(10, 2))


def test_digits_without_end_are_looked_at_once() -> None:
    arrow = pa.decimal128(10, 2)
    zeros = Decimal("1.5" + "0" * 1_000_000)
    assert exact_decimals([zeros], arrow).to_pylist() == [Decimal("1.50")]
    with pytest.raises(ValueError):
        exact_decimals([Decimal("9" * 1_000_000)], arrow)
    with pytest.raises(ValueError):
        exact_decimals([Decimal("0." + "0" * 1_000_000 + "1")], arrow)


def test_as_many_decimals_as_a_record_of_4_mib_holds_take_bounded_time() -> None:
    """A second on a quiet machine."""
    values = [Decimal(each % 10) for each in range(2_000_000)]
    started = time.process_time()
    column = exact_decimals(values, pa.decimal128(12, 3))
    assert time.process_time() - started < 60.0
    assert len(column) == len(values)
    assert column[-1].as_py() == values[-1]


def test_texts_of_many_decimals_are_never_held_all_at_once() -> None:
    values = [Decimal(each % 10) for each in range(400_000)]
    tracemalloc.start()
    try:
        exact_decimals(values, pa.decimal128(12, 3))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # All of them would take 20 MiB.
    assert peak < 10 << 20


@pytest.mark.parametrize("values", [[], [None], [None, None]])
def test_columns_without_a_value(values: list[None]) -> None:
    arrow = pa.decimal128(38, 38)
    for column in (exact_decimals(values, arrow), exact_unscaled(values, 0, arrow)):
        assert (column.type, column.to_pylist()) == (arrow, values)


@given(st.integers(-(10**40), 10**40) | st.integers(-999, 999), st.integers(0, 38), TYPES)
@example(10**37 + 7, 0, (38, 38))
@example(-(2**127), 0, (38, 0))
@example(10**60, 38, (38, 16))
def test_units_of_a_scale_are_exact_or_refused(number: int, scale: int, kind: tuple[int, int]) -> None:
    arrow = pa.decimal128(*kind)
    if not fits(abs(number), -scale, *kind):
        with pytest.raises(ValueError):
            exact_unscaled([0, number, None], scale, arrow)
        return
    column = exact_unscaled([0, number, None], scale, arrow)
    column.validate(full=True)
    sign, digits = int(number < 0), tuple(map(int, str(abs(number))))
    assert column.to_pylist() == [0, Decimal((sign, digits, -scale)), None]
