"""Searching images answers exactly what a dictionary of their entries says."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tidemark.index_assigner.runs.images import Images, ImageSearch, make_images, tags_of

# "Aa" and "BB" have one Java hash, and so have all strings made of them.
KEYS = st.text(max_size=20) | st.sampled_from(["AaAa", "AaBB", "BBAa", "BBBB", "Aa", "BB", "a", "a\0", ""])
ENTRIES = st.dictionaries(KEYS, st.tuples(st.integers(0, 2**31 - 1), st.integers(-(2**63), 2**63 - 1)))


def searched(blocks: list[dict[str, tuple[int, int]]], ordered: bool) -> ImageSearch:
    data, starts, widths = bytearray(b"\xff" * 16), [], []
    for entries in blocks:
        locations = np.array([location for location, _ in entries.values()], np.int32)
        values = np.array([value for _, value in entries.values()], np.int64)
        keys = pa.array(list(entries), pa.string())
        [image] = make_images(keys, locations, values if ordered else None, [len(entries)])
        assert image.count == len(entries)
        starts.append(len(data))
        widths.append(image.width)
        data += image.data
    data += b"\xff" * 8
    counts = [len(block) for block in blocks]
    columns = [np.array(part, np.int64) for part in (starts, counts, widths)]
    return ImageSearch(
        np.frombuffer(bytes(data), np.uint8), Images(columns[0], columns[1], columns[2], ordered)
    )


@settings(deadline=None)
@given(st.lists(ENTRIES, max_size=4), st.lists(KEYS, max_size=10), st.booleans())
@example([{"AaAa": (1, 5), "BBBB": (2, 6), "AaBB": (3, 7)}], ["BBAa"], True)
@example([{"a": (1, 0), "a\0": (2, 0)}], ["", "a\0\0"], False)
def test_every_key_is_found_in_its_block_alone(
    blocks: list[dict[str, tuple[int, int]]], others: list[str], ordered: bool
) -> None:
    search = searched(blocks, ordered)
    asked = [key for block in blocks for key in block] + others
    keys = pa.array(asked, pa.string())
    for number in range(-1, len(blocks)):
        found = search.find(keys, tags_of(keys), np.full(len(asked), number))
        expected = [blocks[number].get(key, (-1, 0)) if number >= 0 else (-1, 0) for key in asked]
        assert found.locations.tolist() == [location for location, _ in expected]
        assert found.ordering.tolist() == [value if ordered else 0 for _, value in expected]


def test_a_thousand_keys_of_one_hash_are_told_apart() -> None:
    keys = ["".join("Aa" if number >> bit & 1 else "BB" for bit in range(10)) for number in range(1024)]
    stored = {key: (number, 0) for number, key in enumerate(keys[::2])}
    search = searched([stored], ordered=False)
    asked = pa.array(keys)
    assert len(np.unique(tags_of(asked))) == 1
    found = search.find(asked, tags_of(asked), np.zeros(len(keys), np.int64))
    assert found.locations.tolist() == [stored.get(key, (-1, 0))[0] for key in keys]
