"""Keys, groups and values of secondary index entries, against a model that goes from record to record."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.hudi_format.errors import CorruptFileError, UnsupportedTableError
from tidemark.hudi_format.metadata_table.partitions.secondary_index_codec import (
    ENTRY_VALUE,
    composite_keys,
    entry_values,
    group_of,
    keys_too_long,
    live_values,
    prefixes,
    split_composite_key,
    split_composite_keys,
    value_texts,
)
from tidemark.hudi_format.metadata_table.record_schema import decode_record, encode_record

TEXTS = (
    st.none() | st.text(alphabet=st.sampled_from("ab\\$\x00é\U0001f600\n"), max_size=6) | st.text(max_size=8)
)
KEYS = st.text(alphabet=st.sampled_from("k1\\$\x00ß\n"), min_size=1, max_size=6)


def strings(texts: Sequence[str | None]) -> pa.StringArray:
    return pa.array(texts, pa.string())


def slow_escape(text: str) -> str:
    return "".join("\\" + char if char in "\\$\x00" else char for char in text)


def slow_prefix(text: str | None) -> str:
    return ("\x00" if text is None else slow_escape(text)) + "$"


def slow_group(prefix: str, groups: int) -> int:
    """Java's hash of the text, its absolute value, and the remainder."""
    hashed = 0
    units = prefix.encode("utf-16-le")
    for position in range(0, len(units), 2):
        hashed = (31 * hashed + int.from_bytes(units[position : position + 2], "little")) % 2**32
    return abs(hashed - 2**32 if hashed >= 2**31 else hashed) % groups


@given(st.lists(st.tuples(TEXTS, KEYS), max_size=12), st.integers(1, 50))
def test_keys_and_groups_are_those_of_the_model_and_split_again(
    pairs: list[tuple[str | None, str]], groups: int
) -> None:
    texts, keys = [text for text, _ in pairs], [key for _, key in pairs]
    composite = composite_keys(strings(texts), strings(keys))
    assert composite.to_pylist() == [slow_prefix(text) + slow_escape(key) for text, key in pairs]
    found = prefixes(strings(texts))
    assert found.to_pylist() == [slow_prefix(text) for text in texts]
    assert group_of(found, groups).tolist() == [slow_group(slow_prefix(text), groups) for text in texts]
    again = split_composite_keys(composite, "f")
    assert (again[0].to_pylist(), again[1].to_pylist()) == (texts, keys)


@pytest.mark.parametrize(
    ("text", "prefix", "group"),
    [("paris", "paris$", 3), ("a$b\\c", r"a\$b\\c$", 2), ("\x00", "\\\x00$", 0), ("", "$", 0)],
)
def test_prefixes_and_groups_that_hudi_itself_gave(text: str, prefix: str, group: int) -> None:
    assert prefixes(strings([text])).to_pylist() == [prefix]
    assert group_of(strings([prefix]), 4).tolist() == [group]


def test_null_is_not_the_text_of_one_nul() -> None:
    both = composite_keys(strings([None, "\x00"]), strings(["k3", "k3"]))
    assert both.to_pylist() == ["\x00$k3", "\\\x00$k3"]
    assert [split_composite_key(key.encode()) for key in both.to_pylist()] == [(None, "k3"), ("\x00", "k3")]


@pytest.mark.parametrize("key", ["", "a", "a\\", "a$b$c", "a\x00$k", "a$k\x00", "a\\$k"])
def test_a_key_that_is_none_is_damage(key: str) -> None:
    with pytest.raises(CorruptFileError, match="g: .* is no key of a secondary index"):
        split_composite_key(key.encode(), "g")


@pytest.mark.parametrize(
    ("column", "texts"),
    [
        (pa.array(["x", None, ""], pa.string()), ["x", None, ""]),
        (pa.array([-1, None], pa.int32()), ["-1", None]),
        (pa.array([2**63 - 1], pa.int64()), ["9223372036854775807"]),
        (pa.array([dt.date(2024, 1, 3), dt.date(1969, 12, 31)]), ["19725", "-1"]),
        (pa.array([1704074581123456, -1], pa.timestamp("us", "UTC")), ["1704074581123456", "-1"]),
        (pa.chunked_array([[1], [None, 2]], pa.int64()), ["1", None, "2"]),
        (pa.chunked_array([], pa.string()), []),
    ],
)
def test_texts_are_those_that_hudis_readers_look_up(column: pa.Array, texts: list[str | None]) -> None:
    found = value_texts(column)
    assert (found.type, found.to_pylist()) == (pa.string(), texts)


@pytest.mark.parametrize(
    "kind",
    [
        pa.float32(), pa.float64(), pa.bool_(), pa.binary(), pa.decimal128(10, 2), pa.timestamp("us"),
        pa.timestamp("ms", "UTC"), pa.list_(pa.int32()),
    ],
)  # fmt: skip
def test_columns_of_other_types_are_refused_by_name(kind: pa.DataType) -> None:
    with pytest.raises(UnsupportedTableError) as error:
        value_texts(pa.array([], kind))
    assert f"the type {kind} cannot" in str(error.value)


def test_keys_of_more_bytes_than_an_hfile_holds() -> None:
    texts = strings(["é" * 16_382, "é" * 16_382, "$" * 16_382, "$" * 16_383, None, "x"])
    keys = strings(["kk", "kkk", "kk", "kk", "k" * 32_765, "k" * 32_766])
    sizes = [
        len((slow_prefix(text) + slow_escape(key)).encode())
        for text, key in zip(texts.to_pylist(), keys.to_pylist(), strict=True)
    ]
    assert sizes == [32_767, 32_768, 32_767, 32_769, 32_767, 32_768]
    assert keys_too_long(texts, keys).tolist() == [False, True, False, True, False, True]
    assert keys_too_long(strings([]), strings([])).tolist() == []


def test_the_value_of_an_entry_is_a_metadata_record_of_type_7() -> None:
    record = decode_record(ENTRY_VALUE, "", "f")
    assert (record["type"], record["SecondaryIndexMetadata"]) == (7, {"isDeleted": False})
    assert (
        encode_record({"key": "", "type": 7, "SecondaryIndexMetadata": {"isDeleted": False}}) == ENTRY_VALUE
    )
    assert entry_values(2).to_pylist() == [ENTRY_VALUE] * 2


def test_a_value_may_say_that_its_entry_is_deleted() -> None:
    deleted = encode_record({"key": "", "type": 7, "SecondaryIndexMetadata": {"isDeleted": True}})
    named = encode_record(
        {"key": "", "type": 7, "_hoodie_file_name": "b", "SecondaryIndexMetadata": {"isDeleted": False}}
    )
    values = pa.array([ENTRY_VALUE, deleted, b"", named, ENTRY_VALUE], pa.binary())
    assert live_values(values, "", "f").tolist() == [True, False, False, True, True]
    assert live_values(pa.array([], pa.binary()), "", "f").dtype == np.bool_


def test_a_value_of_another_partition_is_damage() -> None:
    other = pa.array([encode_record({"key": "", "type": 5})], pa.binary())
    with pytest.raises(CorruptFileError, match="f: a record of a secondary index is of type 5"):
        live_values(other, "", "f")
