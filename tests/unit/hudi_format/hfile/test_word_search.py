"""Searching a column by words answers as Python's own comparison of byte strings does."""

from __future__ import annotations

from bisect import bisect_right

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.hudi_format.columnar import BinaryColumn
from tidemark.hudi_format.hfile.block_search import WordSearch

ENDINGS = st.binary(max_size=20) | st.text("ab\0", max_size=18).map(str.encode)
STARTS = st.sampled_from([b"", b"order-0000", b"eight-by", b"\0\0", b"a\0"])


@given(STARTS, st.lists(ENDINGS, max_size=12), st.lists(st.tuples(STARTS, ENDINGS), max_size=12))
def test_every_key_is_found_where_bisect_finds_it(
    start: bytes, endings: list[bytes], others: list[tuple[bytes, bytes]]
) -> None:
    strings = sorted({start + ending for ending in endings})
    keys = [*strings, *(string[:-1] for string in strings), *(string + b"\0" for string in strings)]
    keys += [first + second for first, second in others]
    found = WordSearch(strings).right(BinaryColumn.from_arrow(pa.array(keys, pa.binary())))
    assert found.tolist() == [bisect_right(strings, key) for key in keys]


@pytest.mark.parametrize("strings", [[], [b""], [b"", b"\0"], [b"12345678", b"123456789"]])
def test_bounds(strings: list[bytes]) -> None:
    keys = [b"", b"\0", b"1234567", b"12345678", b"12345678\0", b"123456789", b"\xff" * 9]
    found = WordSearch(strings).right(BinaryColumn.from_arrow(pa.array(keys, pa.binary())))
    assert found.tolist() == [bisect_right(strings, key) for key in keys]
