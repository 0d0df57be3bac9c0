"""The bloom filter of base files, against a scalar implementation of its layout and hash."""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.hudi_format.bloom import BloomSpec, bloom_filter_text

WORD = 0xFFFFFFFF


def murmur2(data: bytes, seed: int) -> int:
    """Murmur2, 32 bits, over signed bytes as Hadoop's MurmurHash has it."""
    m = 0x5BD1E995
    signed = [byte - 256 if byte > 127 else byte for byte in data]
    h = (seed ^ len(data)) & WORD
    whole = len(data) & ~3
    for start in range(0, whole, 4):
        k = int.from_bytes(data[start : start + 4], "little")
        k = (k * m) & WORD
        k ^= k >> 24
        k = (k * m) & WORD
        h = ((h * m) & WORD) ^ k
    left = len(data) - whole
    if left:
        for distance in range(left):
            h ^= (signed[len(data) - 1 - distance] << (8 * distance)) & WORD
        h = (h * m) & WORD
    h ^= h >> 13
    h = (h * m) & WORD
    return h ^ (h >> 15)


def positions(key: str, hashes: int, bits: int) -> Iterator[int]:
    seed = 0
    for _ in range(hashes):
        seed = murmur2(key.encode(), seed)
        number = seed - (1 << 32) if seed >= 1 << 31 else seed
        yield abs(number) % bits


def scalar_filter(keys: list[str], hashes: int, bits: int) -> str:
    body = bytearray((bits + 7) // 8)
    for key in keys:
        for position in positions(key, hashes, bits):
            body[position >> 3] |= 1 << (position & 7)
    return base64.b64encode(struct.pack(">iibi", -1, hashes, 1, bits) + bytes(body)).decode()


def may_contain(text: str, key: str) -> bool:
    raw = base64.b64decode(text)
    version, hashes, kind, bits = struct.unpack_from(">iibi", raw)
    assert (version, kind) == (-1, 1)
    body = raw[13:]
    return all(body[each >> 3] & 1 << (each & 7) for each in positions(key, hashes, bits))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(max_size=12), max_size=20), st.sampled_from([1e-9, 1e-3, 0.5]))
def test_filter_equals_the_scalar_one(keys: list[str], error_rate: float) -> None:
    spec = BloomSpec(error_rate, keys_min=4)
    made = bloom_filter_text(pa.array(keys, pa.string()), spec)
    assert made == scalar_filter(keys, spec.hashes(len(keys)), spec.bits(len(keys)))
    assert all(may_contain(made, key) for key in keys)


def test_filter_excludes_nearly_all_other_keys() -> None:
    keys = pa.array([f"key-{number}" for number in range(5000)])
    others = [f"other-{number}" for number in range(5000)]
    strict = bloom_filter_text(keys, BloomSpec())
    assert not any(may_contain(strict, other) for other in others)
    loose = bloom_filter_text(keys, BloomSpec(error_rate=0.1))
    assert 0.05 < sum(may_contain(loose, other) for other in others) / len(others) < 0.2


def test_sizes_are_hudis_for_its_defaults() -> None:
    """Seen in a file that Hudi 1.2.0 on Spark wrote with hoodie.index.bloom.num_entries=100."""
    assert (BloomSpec().bits(100), BloomSpec().hashes(100)) == (4314, 30)
