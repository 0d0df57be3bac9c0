"""The shard hash against Java's definition, computed the slow way, and against known Java values."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.hudi_format.record_index_hash import java_hash, record_index_shard

MIN_INT = -(2**31)


def slow_java_hash(text: str) -> int:
    units = text.encode("utf-16-le")
    value = 0
    for low, high in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + low + 256 * high) & 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value


def slow_shard(text: str, shards: int) -> int:
    hashed = slow_java_hash(text)
    magnitude = MIN_INT if hashed == MIN_INT else abs(hashed)
    remainder = abs(magnitude) % shards * (-1 if magnitude < 0 else 1)  # Java truncates towards zero
    return abs(remainder)


@given(st.lists(st.text(max_size=40), max_size=30), st.integers(1, 10_000))
def test_any_texts_hash_and_shard_as_java_does(keys: list[str], shards: int) -> None:
    column = pa.array(keys, pa.string())
    assert java_hash(column).tolist() == [slow_java_hash(key) for key in keys]
    assert record_index_shard(column, shards).tolist() == [slow_shard(key, shards) for key in keys]


@pytest.mark.parametrize(
    ("text", "hashed"),
    [
        ("", 0),
        ("a", 97),
        ("polygenelubricants", MIN_INT),
        ("Aa", 2112),
        ("BB", 2112),
        ("\U0001f600", 1772899),
    ],
)
def test_known_java_hashes(text: str, hashed: int) -> None:
    assert java_hash([text]).tolist() == [hashed]


def test_the_smallest_int_gets_the_shard_that_java_gives_it() -> None:
    assert record_index_shard(["polygenelubricants"] * 3, 7).tolist() == [2**31 % 7] * 3
    assert record_index_shard(["polygenelubricants"], 1).tolist() == [0]


def test_keys_longer_than_a_chunk_and_many_chunks() -> None:
    keys = ["x" * 200_000, "", "é" * 70_000, *(f"key-{n}" for n in range(20_000))]
    assert java_hash(keys).tolist() == [slow_java_hash(key) for key in keys]


def test_slices_chunks_and_large_strings_hash_alike() -> None:
    keys = [f"k{n}" for n in range(100)]
    expected = java_hash(keys).tolist()
    assert java_hash(pa.array(["zz", *keys])[1:]).tolist() == expected
    assert java_hash(pa.chunked_array([keys[:40], keys[40:]])).tolist() == expected
    assert java_hash(pa.array(keys, pa.large_string())).tolist() == expected
    assert java_hash(pa.array(keys).dictionary_encode()).tolist() == expected


def test_a_null_key_is_refused() -> None:
    with pytest.raises(ValueError):
        java_hash(pa.array(["a", None]))


def test_no_shards_is_refused() -> None:
    with pytest.raises(ValueError):
        record_index_shard(["a"], 0)
