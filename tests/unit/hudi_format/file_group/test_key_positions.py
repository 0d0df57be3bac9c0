"""Where keys are among others, by their hashes: the answers are those of a look-up by the keys themselves."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from tidemark.hudi_format.file_group import changes
from tidemark.hudi_format.file_group.changes import KeyPositions, positions_in
from tidemark.hudi_format.key_digest import key_hashes


@pytest.mark.parametrize("bits", [64, 8, 2, 0])
@pytest.mark.parametrize("seed", range(3))
def test_positions_are_those_of_the_keys_however_often_hashes_are_equal(
    seed: int, bits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    mask = np.uint64((1 << bits) - 1)
    monkeypatch.setattr(changes, "key_hashes", lambda keys: key_hashes(keys) & mask)
    rng = random.Random(seed)
    keys = pa.array([f"k{number}" for number in rng.sample(range(40), rng.randrange(12))], pa.string())
    known = KeyPositions(keys)
    for size in (0, 1, 30):
        values = pa.array([f"k{rng.randrange(40)}" for _ in range(size)], pa.string())
        assert known.of(values).tolist() == positions_in(values, keys).tolist()
        chunked = pa.chunked_array([values[: size // 2], values[size // 2 :]], pa.string())
        assert known.of(chunked).tolist() == positions_in(values, keys).tolist()


def test_a_value_that_is_null_is_nowhere() -> None:
    assert KeyPositions(pa.array(["a", "b"])).of(pa.array(["b", None])).tolist() == [1, -1]
