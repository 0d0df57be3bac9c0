"""A table that Hudi on Spark made with its default options, so with column stats and partition stats of all
types, bytes among them: `tidemark table adopt` keeps what can be kept, and filters are right from then on.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from tests.interop.filtered_life import OF_SPARKS_TYPES, Judged, ZooTable, tidemark_says, write_config
from tests.interop.judge import HudiJudge
from tests.interop.test_filters_of_served_tables_with_hudi import spark_beside_epochs
from tests.simulation.scripted_tagger import SHARDS, Row
from tidemark.hudi_format.table_config import TableType, read_table_config
from tidemark.table_verification.verify import verify_table

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif("TIDEMARK_FILTERS" not in os.environ, reason="make filters"),
]

ODD: Final[dict[str, Any]] = {"d": math.nan, "s": "~" * 5_000}
KEYS_OF_SPARK: Final = 12


class SparksTable(ZooTable):
    """Three partitions of a file group each; the last one has a NaN and a long text."""

    columns = OF_SPARKS_TYPES
    indexed = ("id", "day", "ts", *OF_SPARKS_TYPES)
    odd_groups = frozenset({2, 4})

    def __init__(self, judge: HudiJudge, folder: Path, table_type: TableType) -> None:
        self._judge = judge
        self._made: dict[str, Row] = {}
        self.adopted: dict[str, Any] = {}
        super().__init__(folder / "t", table_type)
        self.clock.advance(time.time() - self.clock.now_ms() / 1_000)
        self.model = dict(self._made)
        self.filters.see(self.model.values())
        self.places = {key: int(str(row["day"])[1:]) for key, row in self.model.items()}
        located = judge.record_locations(folder / "t", list(self.model))
        for key, (_, file_id) in located.items():
            self.group_ids[self.places[key]] = file_id
        self.epochs = 2

    def make_table(self, table_type: TableType, ordered: bool, stats: Sequence[str]) -> None:
        path = Path(self.storage.base_uri)
        for number in range(KEYS_OF_SPARK):
            (row,) = self._plain.rows([f"k{number}"], "", number % 3, 1)
            changed = {**row, "day": f"d{number % 3}", "ts": 1, **(ODD if number == 2 else {})}
            self._made[f"k{number}"] = {name: changed[name] for name in self.schema.arrow.names}
        self._judge.create_table_with_spark(
            path,
            pa.Table.from_pylist(list(self._made.values()), schema=self.schema.arrow),
            table_type=table_type.value,
            partition=("day",),
            shards=SHARDS,
            options={"hoodie.metadata.index.column.stats.enable": "true"},
        )
        assert {"column_stats", "partition_stats"} < read_table_config(self.storage).metadata_partitions
        self.config_file = write_config(path.parent, table_type, self.schema)
        self.adopted = tidemark_says(self.config_file, "table", "adopt")


@pytest.mark.parametrize("table_type", list(TableType))
def test_adopted_stats_stay_right(judge: HudiJudge, tmp_path: Path, table_type: TableType) -> None:
    life = SparksTable(judge, tmp_path, table_type)
    told = life.adopted["column_stats"]
    assert tuple(told["columns"]) == life.indexed
    assert {(column, reason.rpartition("(")[2].rstrip(")")) for _, column, reason in told["wrong"]} == {
        ("d", "apache/hudi#18754"),
        ("s", "apache/hudi#18755"),
    }
    assert read_table_config(life.storage).metadata_partitions == {"files", "record_index", "column_stats"}
    told_by_us = tidemark_says(life.config_file, "table", "describe")
    judged = Judged(judge, life, told_by_us["foreign_writer_options"])
    try:
        judged.skips_right("adopted")
        life.epochs_of_ours(3)
        judged.skips_right("epochs")
        spark_beside_epochs(judged)
        assert verify_table(life.storage, lambda _: None).agrees
    finally:
        judged.spark.close()
