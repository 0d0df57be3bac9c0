"""Which windows of 64 KiB count as mapped, and which are given back."""

from __future__ import annotations

import numpy as np

from tidemark.index_assigner.runs.mapped_blocks import MappedBlocks

KIB = 1 << 10


def blocks_of(*sizes_kib: int) -> MappedBlocks:
    ends = np.cumsum(np.array(sizes_kib, np.int64)) * KIB
    return MappedBlocks(ends - np.array(sizes_kib) * KIB, ends)


def look(mapped: MappedBlocks, *blocks: int) -> list[int]:
    at = np.array(blocks, np.int64)
    new = mapped.unchecked(at)
    mapped.checked(at, new)
    return [int(block) for block in new]


def test_windows_are_counted_once_and_those_of_a_long_image_are_all_counted() -> None:
    # Windows: block 0 and 1 in the first, 2 from the first to the third, 3 in the third.
    mapped = blocks_of(10, 20, 120, 30)
    assert look(mapped, 0, 1) == [0, 1]
    assert mapped.nbytes == 64 * KIB
    assert look(mapped, 1) == []
    assert look(mapped, 2, 3) == [2, 3]
    assert mapped.nbytes == 3 * 64 * KIB


def test_what_was_not_used_since_the_last_call_goes_first() -> None:
    mapped = blocks_of(64, 64, 64, 64)
    look(mapped, 0, 1, 2, 3)
    assert mapped.give_back(all_of_them=False) == []
    look(mapped, 1)
    assert mapped.give_back(all_of_them=False) == [(0, 64 * KIB), (128 * KIB, 128 * KIB)]
    assert mapped.nbytes == 64 * KIB
    assert look(mapped, 0, 1) == [0]
    assert mapped.give_back(all_of_them=True) == [(0, 128 * KIB)]
    assert mapped.nbytes == 0
    assert look(mapped, 0, 1) == [0, 1]


def test_a_window_stays_while_one_of_its_blocks_does() -> None:
    mapped = blocks_of(40, 40)
    look(mapped, 0, 1)
    mapped.give_back(all_of_them=False)
    look(mapped, 1)
    # Block 0 alone is in the first window, but its neighbour reaches into it.
    assert mapped.give_back(all_of_them=False) == []
    assert look(mapped, 0) == [0]


def test_a_run_without_blocks_has_nothing_mapped() -> None:
    mapped = MappedBlocks(np.empty(0, np.int64), np.empty(0, np.int64))
    assert mapped.give_back(all_of_them=True) == []
