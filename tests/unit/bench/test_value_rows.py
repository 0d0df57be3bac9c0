"""Rows whose values others share, and the bench's own model of them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from bench.value_rows import COLUMN, ValueWorkload, value_text
from bench.wide_rows import LEAST


def test_the_model_has_the_keys_of_each_value_after_updates_and_inserts() -> None:
    workload, rows = ValueWorkload(1_000, 4, seed=7), dict[str, str]()
    for batch in [*workload.initial_rows(), workload.batch(300), workload.batch(300)]:
        rows |= dict(zip(batch["id"].to_pylist(), batch[COLUMN].to_pylist(), strict=True))

    values = workload.sample_values(50)

    assert len(set(values.tolist())) == 50
    texts = set(value_text(values).to_pylist())
    assert workload.keys_of(values) == sorted(key for key, text in rows.items() if text in texts)
    assert len(rows) == 1_060


def test_a_table_of_few_values_gives_all_of_them_and_rows_have_four_columns() -> None:
    workload = ValueWorkload(40, 10, seed=7)
    [first] = workload.initial_rows()
    assert first.schema.names == [*LEAST, COLUMN] == workload.schema().names
    assert _sorted(workload.sample_values(100)) == _sorted(set(workload.value_of))
    assert value_text(pa.array([3]).to_numpy()).to_pylist() == ["city 3"]


def _sorted(numbers: Any) -> list[int]:
    return sorted(int(number) for number in numbers)
