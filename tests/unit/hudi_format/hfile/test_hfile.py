"""HFiles: what is written is read again, damage is not absence, Hudi's reader bug is worked around."""

from __future__ import annotations

import gzip
import struct
import tracemalloc
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testing.memory_storage import InMemoryStorage
from tidemark.hudi_format.errors import CorruptFileError, FileMissingError, HudiFormatError
from tidemark.hudi_format.hfile import (
    AMBIGUOUS_BLOCK,
    Codec,
    HFileOptions,
    HFileReader,
    layout,
    write_hfile,
)
from tidemark.hudi_format.hfile.block_search import BlockSearch
from tidemark.hudi_format.storage import LocalStorage

SCHEMA = '{"type":"record","name":"R","fields":[]}'


def hfile(entries: dict[str, bytes], **options: object) -> bytes:
    keys = sorted(entries, key=str.encode)
    values = pa.array([entries[key] for key in keys], pa.binary())
    return write_hfile(pa.array(keys, pa.string()), values, SCHEMA, HFileOptions(**options))  # type: ignore[arg-type]


def content(data: bytes) -> dict[str, bytes]:
    everything = HFileReader.from_bytes(data, "test.hfile").read_all()
    return dict(zip(everything.keys.to_pylist(), everything.values.to_pylist(), strict=True))


def test_block_that_promises_too_much_is_refused_before_it_unpacks() -> None:
    stored = gzip.compress(bytes(1 << 20))
    promised = layout.BLOCK_BYTES_MAX + 1
    header = layout.BlockHeader(layout.HFileBlockType.DATA, len(stored), promised, len(stored))
    with pytest.raises(CorruptFileError, match=f"would take {promised} bytes"):
        layout.unpack_payload(bytes(layout.HEADER_BYTES) + stored, header, Codec.GZ, "t", 0)


def test_gzip_bomb_ends_at_the_size_that_its_header_names() -> None:
    stored = gzip.compress(bytes(64 << 20))
    header = layout.BlockHeader(layout.HFileBlockType.DATA, len(stored), 1_000, len(stored))
    with pytest.raises(CorruptFileError, match="is not 1000 bytes"):
        layout.unpack_payload(bytes(layout.HEADER_BYTES) + stored, header, Codec.GZ, "t", 0)


ENTRIES = st.dictionaries(st.text(max_size=20), st.binary(max_size=80), max_size=60)


@settings(deadline=None)
@given(ENTRIES, st.sampled_from(Codec), st.sampled_from([1, 200, 65536]))
def test_any_entries_come_back(entries: dict[str, bytes], codec: Codec, block_bytes: int) -> None:
    data = hfile(entries, codec=codec, data_block_bytes=block_bytes)
    reader = HFileReader.from_bytes(data, "test.hfile")
    assert content(data) == entries
    assert (reader.entry_count, reader.codec, reader.schema) == (len(entries), codec, SCHEMA)
    blocks = [reader.read_block(number).keys.to_pylist() for number in range(reader.block_count)]
    assert [key for block in blocks for key in block] == sorted(entries, key=str.encode)
    assert reader.first_keys.to_pylist() == [block[0].encode() for block in blocks]


# What stands between an entry's key and value, and entries' heads that tell of keys of some lengths.
BETWEEN = b"\x00" + b"\x7f" + b"\xff" * 7 + b"\x04"
HEADS = [struct.pack(">iih", length + 12, 3, length) for length in range(4)]
MISLEADING = st.lists(st.sampled_from([BETWEEN, b"\x00", b"ab", *HEADS]), max_size=6).map(b"".join)


@settings(deadline=None)
@given(st.dictionaries(st.text("a\x00\x7f\x04", max_size=5), MISLEADING, max_size=40))
def test_values_that_look_like_the_ends_of_other_entries_come_back(entries: dict[str, bytes]) -> None:
    assert content(hfile(entries, codec=Codec.NONE, data_block_bytes=400)) == entries


def test_keys_of_very_many_lengths_come_back() -> None:
    entries = {"k" * length: b"v" * (length % 7) for length in range(1, 300)}
    assert content(hfile(entries)) == entries


def test_blocks_that_are_not_neighbours_are_read_together() -> None:
    entries = {f"k{n:03d}": b"v" * (n % 5) for n in range(200)}
    reader = HFileReader.from_bytes(hfile(entries, data_block_bytes=100), "t")
    wanted = [0, 3, 4, 9, reader.block_count - 1]
    [run] = reader.runs(wanted)
    assert list(run.numbers) == wanted
    parts = [reader.read_block(number) for number in wanted]
    assert run.content.keys.to_pylist() == [key for part in parts for key in part.keys.to_pylist()]
    assert run.content.values.to_pylist() == [value for part in parts for value in part.values.to_pylist()]


def test_a_damaged_block_among_others_is_named() -> None:
    data = bytearray(hfile({"a": b"1", "b": b"2", "c": b"3"}, codec=Codec.NONE, data_block_bytes=1))
    second = data.index(b"DATABLK*", 8)
    data[second + layout.HEADER_BYTES + 3] ^= 1
    with pytest.raises(CorruptFileError, match=f"x.hfile: block at offset {second}"):
        HFileReader.from_bytes(bytes(data), "x.hfile").read_all()


@settings(deadline=None)
@given(ENTRIES, st.lists(st.text(max_size=20), max_size=20))
def test_the_located_block_is_the_only_one_that_can_hold_the_key(
    entries: dict[str, bytes], others: list[str]
) -> None:
    reader = HFileReader.from_bytes(hfile(entries, data_block_bytes=100), "test.hfile")
    blocks = [set(reader.read_block(number).keys.to_pylist()) for number in range(reader.block_count)]
    wanted = [*entries, *others]
    for key, located, candidates in zip(
        wanted,
        reader.locate(pa.array(wanted, pa.string())).tolist(),
        reader.candidate_blocks(pa.array(wanted, pa.string())).T.tolist(),
        strict=True,
    ):
        holding = [number for number, keys in enumerate(blocks) if key in keys]
        assert set(holding) <= set(candidates)
        if located != AMBIGUOUS_BLOCK:
            assert holding in ([], [located])


def test_a_key_that_sorts_differently_by_utf16_is_ambiguous() -> None:
    # U+FF41 is above U+1F600 in UTF-16 (whose units begin at D83D) and below it in UTF-8.
    reader = HFileReader.from_bytes(hfile({"a": b"", "\uff41": b""}, data_block_bytes=1), "t")
    assert reader.locate(pa.array(["a", "\U0001f600", "zz"])).tolist() == [0, AMBIGUOUS_BLOCK, 0]
    assert reader.candidate_blocks(pa.array(["\U0001f600"])).T.tolist() == [[1, 0]]


@given(st.sets(st.text("aé\uff41\ue000\U0001f600\U0010ffff", max_size=4), max_size=20), st.integers(1, 3))
def test_in_a_file_sorted_as_hudi_on_spark_sorts_no_holding_block_is_missed(
    keys: set[str], keys_per_block: int
) -> None:
    ordered = sorted(keys, key=lambda key: key.encode("utf-16-be"))
    blocks = [ordered[at : at + keys_per_block] for at in range(0, len(ordered), keys_per_block)]
    search = BlockSearch([block[0].encode() for block in blocks])
    column = pa.array(ordered, pa.string())
    located, candidates = search.locate(column), search.candidates(column)
    for position in range(len(ordered)):
        holding = position // keys_per_block
        assert holding in candidates[:, position]
        assert located[position] in (holding, AMBIGUOUS_BLOCK)


def test_no_data_block_is_so_large_that_hudis_reader_loses_its_last_entries() -> None:
    incompressible = {f"{n:06d}": struct.pack(">dd", n**0.5, n**0.25) for n in range(20_000)}
    for codec in Codec:
        data = hfile(incompressible, codec=codec)
        reader = HFileReader.from_bytes(data, "t")
        assert reader.block_count > 5
        offset = 0
        for number in range(reader.block_count):
            header = layout.BlockHeader.unpack(data[offset : offset + 33], "t", offset)
            checksum_bytes = header.on_disk_size - header.compressed_size
            last = reader.read_block(number)
            last_entry_bytes = 21 + len(last.keys[-1].as_py().encode()) + len(last.values[-1].as_py())
            assert header.uncompressed_size <= 64 * 1024
            assert checksum_bytes < last_entry_bytes
            offset += 33 + header.on_disk_size


def test_blocks_above_64_kib_are_refused() -> None:
    with pytest.raises(HudiFormatError):
        HFileOptions(data_block_bytes=64 * 1024 + 1)


def test_an_entry_larger_than_a_block_has_a_block_of_its_own() -> None:
    entries = {"a": b"1", "b": b"x" * 200_000, "c": b"3"}
    data = hfile(entries)
    assert content(data) == entries
    assert HFileReader.from_bytes(data, "t").block_count == 3


def test_the_same_entries_give_the_same_bytes() -> None:
    entries = {f"k{n}": b"v" * n for n in range(50)}
    assert hfile(entries) == hfile(entries)


@pytest.mark.parametrize("keys", [["b", "a"], ["a", "a"], ["a", "b", "b"], ["\U0001f600", "\uff41"]])
def test_keys_out_of_order_or_doubled_are_refused(keys: list[str]) -> None:
    with pytest.raises(HudiFormatError, match="strictly ascend"):
        write_hfile(pa.array(keys), pa.array([b""] * len(keys), pa.binary()), SCHEMA)


def test_a_key_that_is_too_long_is_refused() -> None:
    with pytest.raises(HudiFormatError, match="32767"):
        hfile({"x" * 32_768: b""})
    assert content(hfile({"x" * 32_767: b""})) == {"x" * 32_767: b""}


def test_a_payload_of_several_gzip_members_is_read_whole() -> None:
    header = layout.BlockHeader(layout.HFileBlockType.DATA, 0, 6, 0)
    stored = gzip.compress(b"abc") + gzip.compress(b"def")
    whole = layout.BlockHeader(header.block_type, len(stored), 6, len(stored))
    assert layout.unpack_payload(bytes(33) + stored, whole, Codec.GZ, "t", 0) == b"abcdef"


def with_index_levels(levels: int) -> tuple[bytes, list[str]]:
    """An HFile with one entry per data block and an index of the given number of levels, fan-out 2."""
    keys = [f"k{n:02d}" for n in range(7)]
    flat = hfile(dict.fromkeys(keys, b"v"), codec=Codec.NONE, data_block_bytes=1)
    trailer = layout.Trailer.unpack(flat[-4096:], "t", 0)
    data = bytearray(flat[: trailer.load_on_open_offset])
    reader = HFileReader.from_bytes(flat, "t")
    entries = [(entry.offset, entry.size, entry.key) for entry in reader._blocks]
    for level in range(1, levels):
        kind = layout.HFileBlockType.LEAF_INDEX if level == 1 else layout.HFileBlockType.INTERMEDIATE_INDEX
        parents = []
        for at in range(0, len(entries), 2):
            group = entries[at : at + 2]
            bodies = [struct.pack(">qih", o, s, len(k)) + k for o, s, k in group]
            ends = [sum(map(len, bodies[:n])) for n in range(len(bodies) + 1)]
            payload = struct.pack(f">i{len(ends)}i", len(group), *ends) + b"".join(bodies)
            block = layout.pack_block(kind, payload, Codec.NONE, 1, -1)
            parents.append((len(data), len(block), group[0][2]))
            data += block
        entries = parents
    start = len(data)
    root = b"".join(
        struct.pack(">qi", o, s) + layout.hadoop_vint(len(k) + 2) + struct.pack(">h", len(k)) + k
        for o, s, k in entries
    )
    data += layout.pack_block(layout.HFileBlockType.ROOT_INDEX, root, Codec.NONE, 1, -1)
    pairs = dict(
        zip(layout.Trailer.__slots__, [getattr(trailer, n) for n in layout.Trailer.__slots__], strict=True)
    )
    pairs.update(load_on_open_offset=start, data_index_count=len(entries), index_levels=levels)
    return bytes(data) + layout.Trailer(**pairs).pack(), keys


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_indexes_of_several_levels_are_read(levels: int) -> None:
    data, keys = with_index_levels(levels)
    reader = HFileReader.from_bytes(data, "t")
    assert reader.block_count == len(keys)
    assert reader.read_all().keys.to_pylist() == keys
    assert reader.locate(pa.array([*keys, "a", "z"])).tolist() == [*range(7), -1, 6]


def test_a_cut_off_file_is_corrupt_and_not_empty() -> None:
    data = hfile({f"k{n}": b"v" for n in range(100)})
    for size in (0, 10, 4095, len(data) // 2, len(data) - 1):
        with pytest.raises(CorruptFileError, match="cut.hfile"):
            HFileReader.from_bytes(data[:size], "cut.hfile").read_all()


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_a_flipped_byte_is_an_error_or_changes_nothing_that_counts(data: st.DataObject) -> None:
    entries = {f"key{n}": bytes([n]) * 20 for n in range(40)}
    whole = bytearray(hfile(entries, data_block_bytes=300))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    try:
        outcome: object = content(bytes(whole))
    except CorruptFileError as error:
        outcome = str(error)
    assert outcome == entries or "test.hfile" in str(outcome)


def test_a_wrong_magic_names_file_and_offset() -> None:
    data = bytearray(hfile({"a": b"1", "b": b"2"}, data_block_bytes=1))
    second = data.index(b"DATABLK*", 8)
    data[second] = ord("X")
    with pytest.raises(CorruptFileError, match=f"x.hfile.* offset {second}"):
        HFileReader.from_bytes(bytes(data), "x.hfile").read_block(1)


def test_a_file_is_read_by_blocks_from_storage(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    entries = {f"{n:06d}": struct.pack(">d", n**0.5) * 8 for n in range(30_000)}
    storage.create("a/b.hfile", hfile(entries, codec=Codec.NONE))
    reader = HFileReader.open(storage, "a/b.hfile")
    numbers = reader.locate(pa.array(["000000", "015000", "029999"])).tolist()
    assert numbers[0] == 0
    assert numbers[2] == reader.block_count - 1
    assert "015000" in reader.read_block(numbers[1]).keys.to_pylist()
    assert len(reader.read_all()) == len(entries)


def test_a_missing_file_is_missing_not_empty() -> None:
    with pytest.raises(FileMissingError):
        HFileReader.open(InMemoryStorage(), "gone.hfile")


class AtOnce(Executor):
    """Threads that have inflated everything before anybody asks: the most that can be held."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(fn(*args, **kwargs))
        return done


@pytest.mark.parametrize("value_bytes", [1 << 20, 300])
def test_inflated_blocks_are_held_by_their_bytes_however_large_blocks_are(value_bytes: int) -> None:
    """Blocks that Hudi wrote have 1 MiB, our own 64 KiB. No key is found: what is held are blocks alone."""
    count = (48 << 20) // value_bytes
    names = [f"{number:09d}" for number in range(count)]
    values = pa.array([bytes(value_bytes)] * count, pa.binary())
    reader = HFileReader.from_bytes(write_hfile(pa.array(names), values, SCHEMA), "t")
    assert reader.block_count > 40
    asked = pa.array([f"{first.decode()}-" for first in reader.first_keys.to_pylist()])
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        found = reader.find(asked, AtOnce())
        most = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert (found.blocks_read, len(found.positions)) == (reader.block_count, 0)
    assert most < 10 << 20, f"{most >> 20} MiB at once"


def test_threads_inflate_a_file_of_few_large_blocks() -> None:
    """Eight blocks of 1 MiB are as much work as 128 of 64 KiB."""
    names = [f"{number:09d}" for number in range(8)]
    values = pa.array([bytes(1 << 20)] * 8, pa.binary())
    reader = HFileReader.from_bytes(write_hfile(pa.array(names), values, SCHEMA), "t")
    submitted: list[Any] = []

    class Counting(AtOnce):
        def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
            submitted.append(args)
            return super().submit(fn, *args, **kwargs)

    found = reader.find(pa.array(names), Counting())
    assert sorted(found.positions.tolist()) == list(range(8))
    assert len(submitted) == 8
