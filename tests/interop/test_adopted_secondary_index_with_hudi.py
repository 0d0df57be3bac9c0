"""A table with a secondary index that Hudi on Spark made: `tidemark table adopt` says how many entries were
wrong and puts them right, and from then on Spark finds all rows by it, behind our epochs and its own writes.

`make services-interop`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from tests.interop.filtered_life import tidemark_says, write_config
from tests.interop.judge import HudiJudge
from tests.interop.spark_operations import COMPACTS_INDEX, SparkOperations
from tests.interop.test_secondary_index_of_epochs_with_hudi import ARROW, Asked, Town
from tests.simulation.scripted_tagger import SHARDS, Row
from tidemark.hudi_format.commit.foreign_writers import foreign_writer_options
from tidemark.hudi_format.index_definitions import read_index_definitions
from tidemark.hudi_format.metadata_table.partitions.secondary_index import SECONDARY_PREFIX
from tidemark.hudi_format.metadata_table.secondary_admission import made_by_writes
from tidemark.hudi_format.table_config import TableType, read_table_config

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif("TIDEMARK_SERVICES" not in os.environ, reason="make services-interop"),
]

KEYS_OF_SPARK: Final = 12
IN_A_WRITE: Final = {
    "hoodie.metadata.index.secondary.enable": "true",
    "hoodie.metadata.index.secondary.column": "city",
}
"""A writer makes the index on its way, before it writes its own rows."""


class SparksTown(Town):
    """Three partitions of a file group each. Spark wrote all rows, then made the index, by a statement or as
    part of a write (``in_a_write``), and changed some rows; then the table is adopted.
    """

    def __init__(self, judge: HudiJudge, folder: Path, table_type: TableType, in_a_write: bool) -> None:
        self._judge, self._in_a_write = judge, in_a_write
        self._made: dict[str, Row] = {}
        self.adopted: dict[str, Any] = {}
        self.warned_of: list[str] = []
        super().__init__(folder / "t", table_type)
        self.clock.advance(time.time() - self.clock.now_ms() / 1_000)
        self.model = dict(self._made)
        self.places = {key: int(str(row["day"])[1:]) for key, row in self.model.items()}
        for key, (_, file_id) in judge.record_locations(folder / "t", list(self.model)).items():
            self.group_ids[self.places[key]] = file_id
        self.epochs = 3

    def make_table(self, table_type: TableType, ordered: bool, stats: Sequence[str]) -> None:
        path, judge = Path(self.storage.base_uri), self._judge
        made, changed = self._rows(range(KEYS_OF_SPARK), 1), self._rows(range(0, KEYS_OF_SPARK, 2), 2)
        judge.create_table_with_spark(
            path, made, table_type=table_type.value, partition=("day",), shards=SHARDS
        )
        if not self._in_a_write:
            spark = SparkOperations(judge, path, foreign_writer_options(str(path)))
            spark.create_index("by_city", "city")
            spark.close()
        judge.upsert(path, changed, IN_A_WRITE if self._in_a_write else None)
        self.warned_of = made_by_writes(self.storage)
        self.adopted = tidemark_says(write_config(path.parent, table_type, self.schema), "table", "adopt")

    def _rows(self, numbers: Sequence[int], ts: int) -> pa.Table:
        rows = []
        for number in numbers:
            city = ("oslo", None, f"only {number} {ts}")[(number // 2 + ts) % 3]
            plain = dict.fromkeys(("num", "big", "born", "seen"))
            rows.append({"id": f"k{number}", "day": f"d{number % 3}", "ts": ts, "city": city, **plain})
        self._made |= {str(row["id"]): row for row in rows}
        return pa.Table.from_pylist(rows, schema=ARROW)


@pytest.mark.parametrize("in_a_write", [True, False])
@pytest.mark.parametrize("table_type", list(TableType))
def test_spark_finds_rows_by_its_own_index_that_was_adopted(
    judge: HudiJudge, tmp_path: Path, table_type: TableType, in_a_write: bool
) -> None:
    life = SparksTown(judge, tmp_path, table_type, in_a_write)
    [name] = [name for name in read_index_definitions(life.storage) if name.startswith(SECONDARY_PREFIX)]
    assert name in read_table_config(life.storage).metadata_partitions
    [told] = life.adopted["secondary_indexes"]
    assert (told["partition"], told["column"], told["anew"]) == (name, "city", False)
    # What a write made misses its own rows.
    assert (told["missing"] > 0) == in_a_write, told
    assert life.warned_of == ([name] if in_a_write else [])
    assert made_by_writes(life.storage) == []
    asked = Asked(judge, life, ("city",))
    asked.finds("adopted")
    life.epochs_of_ours(4)
    asked.finds("epochs")
    # Its writer still has the options that made the index.
    asked.upserts("s0", "s1", **COMPACTS_INDEX, **(IN_A_WRITE if in_a_write else {}))
    asked.finds("Spark's upsert behind its compaction of the index")
    assert made_by_writes(life.storage) == []
    life.epochs_of_ours(2)
    asked.finds("epochs behind it")
    asked.spark.close()
