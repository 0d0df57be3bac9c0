"""The benchmark's input with a column whose values some rows share, as a secondary index has them."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from bench.wide_rows import LEAST, WideWorkload
from bench.workload import Numbers, key_text

COLUMN: Final = "city"


class ValueWorkload(WideWorkload):
    """A workload of four columns: key, partition, ordering value, and `city`. A row draws its city anew each
    time, evenly from so many that about `per_value` rows share one. `value_of[number]` is the number of what
    was last drawn for a key, the model of the column; `value_text` gives its text.
    """

    def __init__(self, keys: int, per_value: int, seed: int, partitions: int = 16) -> None:
        super().__init__(keys, len(LEAST), seed, partitions)
        self._drawn = np.random.default_rng(seed)
        self._values = max(keys // per_value, 1)
        self.value_of: Numbers = np.zeros(keys, dtype=np.int64)

    def sample_values(self, count: int) -> Numbers:
        """Random values that rows have, each at most once; fewer where there are not so many."""
        present = np.unique(self.value_of)
        return self._drawn.choice(present, min(count, present.size), replace=False)

    def keys_of(self, values: Numbers) -> list[str]:
        """The keys of all rows that have one of the values, sorted."""
        return sorted(key_text(np.flatnonzero(np.isin(self.value_of, values))).to_pylist())

    def _rows(self, numbers: Numbers) -> pa.Table:
        rows = super()._rows(numbers)
        drawn = self._drawn.integers(0, self._values, numbers.size)
        new = self.region_of.size - self.value_of.size
        self.value_of = np.concatenate([self.value_of, np.zeros(new, dtype=np.int64)])
        self.value_of[numbers] = drawn
        return rows.append_column(COLUMN, value_text(drawn))


def value_text(values: Numbers) -> pa.StringArray:
    """The texts of these values."""
    return pa.compute.binary_join_element_wise("city ", pa.array(values).cast(pa.string()), "")
