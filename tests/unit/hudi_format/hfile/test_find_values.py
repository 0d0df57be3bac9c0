"""Values are found in a file's blocks without decoding them: as decoding says, for every key."""

from __future__ import annotations

import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.hudi_format.errors import CorruptFileError
from tidemark.hudi_format.hfile import HFileOptions, HFileReader, key_values, write_hfile
from tidemark.hudi_format.hfile.key_values import (
    _marked_starts,
    _walked_starts,
    encode_entries,
    find_values,
)
from tidemark.hudi_format.storage import LocalStorage

BETWEEN = b"\x00" + (2**63 - 1).to_bytes(8, "big") + b"\x04"
KEYS = st.text("ab\0é\uff41\U0001f600", max_size=4)


def named(key: bytes) -> bytes:
    """The bytes by which a key is searched; a value may hold them as well."""
    return struct.pack(">h", len(key)) + key + BETWEEN


VALUES = (
    st.binary(max_size=6)
    | KEYS.map(lambda key: named(key.encode()))
    | KEYS.map(lambda key: struct.pack(">ii", len(key.encode()) + 12, 1) + named(key.encode()) + b"v\0")
)


@settings(deadline=None, max_examples=100)
@given(st.dictionaries(KEYS, VALUES, max_size=12), st.lists(KEYS, unique=True, max_size=6), st.booleans())
def test_every_key_has_the_value_that_decoding_gives(
    content: dict[str, bytes], others: list[str], java_order: bool
) -> None:
    keys = sorted(content, key=lambda key: key.encode("utf-16-be") if java_order else key.encode())
    payload = payload_of({key: content[key] for key in keys})
    asked = list(dict.fromkeys([*others, *content]))
    # Few keys are searched for; a block is decoded for many.
    for most in (key_values._SEARCHED_BYTES_MAX, 0):
        with patch.object(key_values, "_SEARCHED_BYTES_MAX", most):
            found = find_values(payload, [key.encode() for key in asked], "f", 0)
        assert {asked[at]: value for at, value in found} == {k: content[k] for k in asked if k in content}
        assert len(found) == len(content)


def payload_of(content: dict[str, bytes]) -> bytes:
    encoded = encode_entries(
        pa.array(list(content), pa.string()), pa.array(list(content.values()), pa.binary())
    )
    return encoded.data[encoded.offsets[0] : encoded.offsets[-1]].tobytes()


def test_a_file_answers_keys_of_any_of_its_blocks_and_reads_those_alone() -> None:
    keys = [f"key-{number:04d}" for number in range(400)]
    values = [f"value-{number}".encode() for number in range(400)]
    data = write_hfile(
        pa.array(keys), pa.array(values, pa.binary()), "", HFileOptions(data_block_bytes=1_000)
    )
    reader = HFileReader.from_bytes(data, "f")
    assert reader.block_count > 10
    asked = ["zz", "key-0399", "key-0000", "key-00005", "", "x" * 40_000, "key-0001"]
    found = reader.find(pa.array(asked))
    order = np.argsort(found.positions)
    assert found.positions[order].tolist() == [1, 2, 6]
    assert found.values.take(pa.array(order)).to_pylist() == [values[399], values[0], values[1]]
    assert found.blocks_read == 2
    nothing = reader.find(pa.array([], pa.string()))
    assert (len(nothing.positions), len(nothing.values), nothing.blocks_read) == (0, 0, 0)


def test_entries_that_are_framed_differently_are_an_error_and_not_absent() -> None:
    """Their keys are not where they would be searched."""
    payload = payload_of({"a": b"1", "b": b"2"}).replace(BETWEEN, BETWEEN[:-1] + b"\x08")
    with pytest.raises(CorruptFileError, match="not plain puts"):
        find_values(payload, [b"b"], "f", 0)


@pytest.mark.parametrize("entry", [0, 1])
def test_lengths_that_lead_nowhere_are_an_error(entry: int) -> None:
    payload = bytearray(payload_of({"a": b"1", "b": b"2", "c": b"3"}))
    size = len(payload) // 3
    payload[size * entry + 4 : size * entry + 8] = struct.pack(">i", -5)
    with pytest.raises(CorruptFileError):
        find_values(bytes(payload), [b"c"], "f", 0)


class CountedStorage(LocalStorage):
    """Counts the reads of ranges."""

    reads = 0

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        self.reads += 1
        return super().read_range(path, offset, length)


def many_blocks(folder: Path, value_bytes: int = 100) -> tuple[CountedStorage, list[str]]:
    """A file `f` of 200 keys, one in each block, whose values do not compress."""
    keys = [f"key-{number:04d}" for number in range(200)]
    random = np.random.default_rng(1)
    values = [random.bytes(value_bytes) for _ in keys]
    options = HFileOptions(data_block_bytes=1)
    (folder / "f").write_bytes(write_hfile(pa.array(keys), pa.array(values, pa.binary()), "", options))
    return CountedStorage(str(folder)), keys


def test_threads_that_inflate_change_no_answer_and_hide_no_damage(tmp_path: Path) -> None:
    storage, keys = many_blocks(tmp_path)
    asked = pa.array([*keys[::-2], "key-00005", "zz"])
    with ThreadPoolExecutor(2) as inflating:
        alone, beside = (HFileReader.open(storage, "f").find(asked, pool) for pool in (None, inflating))
        assert beside.positions.tolist() == alone.positions.tolist()
        assert beside.values.equals(alone.values)
        assert (len(beside.positions), beside.blocks_read) == (100, alone.blocks_read)
        data = bytearray((tmp_path / "f").read_bytes())
        data[len(data) // 8] ^= 1
        with pytest.raises(CorruptFileError, match="block at offset"):
            HFileReader.from_bytes(bytes(data), "f").find(pa.array(keys), inflating)


def test_near_blocks_are_read_at_once_and_far_ones_are_not(tmp_path: Path) -> None:
    storage, keys = many_blocks(tmp_path, 8_000)
    reader = HFileReader.open(storage, "f")
    assert reader.block_count == 200
    for apart, reads in ((1, 1), (5, 1), (20, 9)):
        storage.reads = 0
        # The file's tail, with the index and the last blocks, is in memory since it was opened.
        assert len(reader.find(pa.array(keys[0:180:apart])).positions) == len(keys[0:180:apart])
        assert storage.reads == reads, apart


def test_entries_of_many_widths_are_found_without_following_their_lengths() -> None:
    random = np.random.default_rng(2)
    content = {
        f"{number:04d}{'k' * width}": b"v" * (60 + width % 3)
        for number, width in enumerate(random.integers(0, 200, 500).tolist())
    }
    payload = payload_of(content)
    starts = _marked_starts(np.frombuffer(payload, np.uint8))
    assert starts is not None
    assert starts.tolist() == _walked_starts(payload, "f", 0).tolist()
