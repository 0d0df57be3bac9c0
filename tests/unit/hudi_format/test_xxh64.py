"""XXH64 against values that other implementations publish."""

from __future__ import annotations

import pytest

from tidemark.hudi_format.xxh64 import xxh64


@pytest.mark.parametrize(
    ("data", "seed", "expected"),
    [
        (b"", 0, 0xEF46DB3751D8E999),
        (b"a", 0, 0xD24EC4F1A98C6E5B),
        (b"abc", 0, 0x44BC2CF5AD770999),
        (b"Nobody inspects the spammish repetition", 0, 0xFBCEA83C8A378BF1),
    ],
)
def test_hashes_are_those_of_the_reference(data: bytes, seed: int, expected: int) -> None:
    assert xxh64(data, seed) == expected
