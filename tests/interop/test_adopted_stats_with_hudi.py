"""A table that Hudi on Spark made with its default options, so with column stats and partition stats of all
types, bytes among them: `tidemark table adopt` keeps what can be kept, and filters are right from then on.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from tests.interop.filtered_life import ARROW, OF_ALL_TYPES, Judged, ZooTable
from tests.interop.judge import HudiJudge
from tests.interop.test_filters_of_served_tables_with_hudi import spark_beside_epochs
from tests.simulation.scripted_tagger import SHARDS, Row
from tidemark.cli.main import main
from tidemark.hudi_format.table_config import TableType, read_table_config
from tidemark.table_verification.verify import verify_table

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif("TIDEMARK_FILTERS" not in os.environ, reason="make filters"),
]

CONFIG: Final = f"""\
table:
  name: t
  path: ./t
  type: TYPE
  record_key: [id]
  partition: [day]
  ordering: ts
  schema: t.avsc
  index: {{shards: {SHARDS}}}
input: {{topics: [t-in]}}
kafka: {{bootstrap.servers: "127.0.0.1:1"}}
state: {{path: ./state}}
services: {{coordinator: "127.0.0.1:1", metrics: "127.0.0.1:0"}}
"""
ODD: Final[dict[str, Any]] = {"d": math.nan, "s": "~" * 5_000}
KEYS_OF_SPARK: Final = 12


class SparksTable(ZooTable):
    """Three partitions of a file group each; the last one has a NaN and a long text."""

    indexed = ("id", "day", "ts", *OF_ALL_TYPES)
    odd_groups = frozenset({2, 4})

    def __init__(self, judge: HudiJudge, folder: Path, table_type: TableType) -> None:
        self._judge, self._file = judge, folder / "t.yaml"
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
            self._made[f"k{number}"] = {name: changed[name] for name in ARROW.names}
        self._judge.create_table_with_spark(
            path,
            pa.Table.from_pylist(list(self._made.values()), schema=ARROW),
            table_type=table_type.value,
            partition=("day",),
            shards=SHARDS,
            options={"hoodie.metadata.index.column.stats.enable": "true"},
        )
        assert {"column_stats", "partition_stats"} < read_table_config(self.storage).metadata_partitions
        self._file.write_text(CONFIG.replace("TYPE", table_type.value.lower()))
        self._file.with_suffix(".avsc").write_text(self.schema.avro_json)
        self.adopted = self.says("adopt")

    def says(self, command: str) -> dict[str, Any]:
        """What `tidemark table …` answers."""
        with contextlib.redirect_stdout(io.StringIO()) as out:
            assert main(["table", command, "-c", str(self._file), "--json"]) == 0
        answer: dict[str, Any] = json.loads(out.getvalue())
        return answer


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
    judged = Judged(judge, life, life.says("describe")["foreign_writer_options"])
    try:
        judged.skips_right("adopted")
        life.epochs_of_ours(3)
        judged.skips_right("epochs")
        spark_beside_epochs(judged)
        assert verify_table(life.storage, lambda _: None).agrees
    finally:
        judged.spark.close()
