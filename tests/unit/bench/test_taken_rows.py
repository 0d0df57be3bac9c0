"""What a bench's heir takes over is what its former owners tagged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from bench.taken_rows import TakenRows
from tidemark.hudi_format.record_index_hash import record_index_shard
from tidemark.index_assigner.domain.locations import Locations
from tidemark.index_assigner.index.counted_rows import TombstoneRows, changes_of_rows


def test_an_heir_is_given_every_transaction_in_order(tmp_path: Path) -> None:
    taken = TakenRows(tmp_path / "rows")
    keys = [f"key-{number}" for number in range(25_000)]
    for offset in (1, 2):
        column = pa.array(keys)
        taken.add(offset, column, record_index_shard(column, 4))
    locations, loaded = Locations(1), dict[int, list[Any]]()

    class Index:
        def load_counted(self, lane: int, offset: int, rows: list[pa.RecordBatch]) -> None:
            assert lane == 0
            changes = changes_of_rows(rows, TombstoneRows([], locations, False), locations)
            loaded[offset] = list(changes)

    index: Any = Index()
    assert taken.load(index) == 50_000
    assert list(loaded) == [1, 2]
    for offset, changes in loaded.items():
        assert [key for change in changes for key in change.keys.to_pylist()] == keys
        assert {int(value) for change in changes for value in change.ordering} == {offset}
    assert taken.chunks == 1
    assert taken.nbytes == sum(file.stat().st_size for file in (tmp_path / "rows").iterdir())
