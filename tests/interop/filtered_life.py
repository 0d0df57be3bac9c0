"""A table with rows of all types that can have column stats, and its judge: whether filters find by column
stats what is there, in fewer files. And the command line with the configuration of such a table.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from tests.interop.filters import COLUMNS, MILLIS, Column, Zoo, is_plain
from tests.interop.judge import HudiJudge
from tests.interop.ruled_table import look
from tests.interop.shared_life import SharedTable
from tests.interop.skipping import judge_skipping
from tests.interop.spark_operations import SparkOperations
from tests.simulation.scripted_tagger import SHARDS, Row
from tidemark.cli.main import main
from tidemark.hudi_format.column_stats_scan import ColumnStatsScan
from tidemark.hudi_format.commit.foreign_writers import foreign_writer_options
from tidemark.hudi_format.metadata_table.own_stats import kept_stats_columns
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.table_config import TableType, read_table_config
from tidemark.hudi_format.timeline import load_timeline
from tidemark.table_verification.findings import Kind
from tidemark.table_verification.verify import verify_table

_log: Final = logging.getLogger(__name__)
SEED: Final = int(os.environ.get("TIDEMARK_SEED", "1"))
FILTERS: Final = int(os.environ.get("TIDEMARK_FILTERS", "600")) // 20
GROUPS: Final = 5
_OTHER_NAMES: Final = {"day": "date", "ts": "moment"}
OF_SPARKS_TYPES: Final = {_OTHER_NAMES.get(name, name): column for name, column in COLUMNS.items()}
"""The columns with stats of a table that Spark makes. Those of the simulated tables are `id`, `day`, `ts`."""
OF_ALL_TYPES: Final = {**OF_SPARKS_TYPES, "millis": MILLIS}
"""The columns with stats of a table of ours."""
_CONFIG: Final = f"""\
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


def write_config(folder: Path, table_type: TableType, schema: TableSchema) -> Path:
    """The configuration of the table `t` in that folder, whose services are stopped."""
    file = folder / "t.yaml"
    file.write_text(_CONFIG.replace("TYPE", table_type.value.lower()))
    file.with_suffix(".avsc").write_text(schema.avro_json)
    return file


def tidemark_says(file: Path, *command: str) -> dict[str, Any]:
    """What `tidemark` answers to a command with that configuration."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main([*command, "-c", str(file), "--json"]) == 0
    answer: dict[str, Any] = json.loads(out.getvalue())
    return answer


def arrow_of(columns: Mapping[str, Column]) -> pa.Schema:
    """The schema of a table with these columns with stats, and one that can have none."""
    return pa.schema(
        [
            pa.field("id", pa.string()),
            pa.field("day", pa.string()),
            pa.field("ts", pa.int64()),
            *(pa.field(name, each.arrow) for name, each in columns.items()),
            pa.field("raw", pa.binary()),
        ]
    )


class ZooTable(SharedTable):
    """A table with rows of all types.

    `columns`: those that rows are drawn for. `indexed`: the columns with stats. `odd_groups`: file groups
    with values of which Hudi makes wrong ranges where it writes base files (#18754), so Spark writes to the
    others.
    """

    columns: Mapping[str, Column] = OF_ALL_TYPES
    indexed: Sequence[str] = tuple(OF_ALL_TYPES)
    odd_groups: Set[int] = frozenset({GROUPS - 1})

    def __init__(self, folder: Path, table_type: TableType) -> None:
        self._plain, self._odd = Zoo(SEED, is_plain, self.columns), Zoo(SEED + 1, columns=self.columns)
        self.filters = Zoo(SEED + 2, columns=self.columns)
        super().__init__(folder, table_type, GROUPS, arrow_of(self.columns), SEED)

    def new_row(self, key: str, group: int) -> Row:
        zoo = self._odd if group in self.odd_groups else self._plain
        (row,) = zoo.rows([key], f"d{group % 3}", group, self.epochs)
        self.filters.see([row])
        return {**row, "day": row.pop("region"), "ts": row.pop("seq")}


class Judged:
    """A table, its judge, and Spark with the options of writers (`options`: those that it was told)."""

    def __init__(self, judge: HudiJudge, life: ZooTable, options: Mapping[str, str] | None = None) -> None:
        self._judge, self.life = judge, life
        self.path = Path(life.storage.base_uri)
        told = options or foreign_writer_options(str(self.path), stats=life.indexed, schema=life.schema.arrow)
        self.spark = SparkOperations(judge, self.path, told)
        self.name = read_table_config(life.storage).table_type.value

    def skips_right(self, stage: str, count: int = FILTERS) -> None:
        """The table keeps stats of its columns, and by none of so many filters a row is lost."""
        storage = self.life.storage
        assert kept_stats_columns(storage, read_table_config(storage)) == [*self.life.indexed], stage
        found = verify_table(storage, lambda _: None).findings
        assert not found.counts.keys() & {Kind.COLUMN_STATS_MISSING, Kind.COLUMN_STATS_WRONG}, stage
        self.finds(stage, count, fewer=True)

    def finds(self, stage: str, count: int, *, fewer: bool) -> None:
        """Filters find the same rows with data skipping and without; ``fewer``: in fewer files."""
        filters = [self.life.filters.filter() for _ in range(count)]
        _log.info("%s, after %s:", self.name, stage)
        judge_skipping(self._judge, self.path, filters, fewer=fewer)
        rows = {row["id"] for row in self._judge.snapshot(self.path)}
        assert rows == self.life.model.keys(), stage

    def upserts(self, *new: str, **more: str) -> None:
        self.life.meet_spark()
        self.spark.write(self.life.theirs(new), "upsert", **more)

    def dies_long_ago(self) -> None:
        """The process whose write is pending died long ago."""
        pending = load_timeline(self.life.storage).pending()
        assert pending
        files = [f"timeline/{each.requested}.{each.action.value}.requested" for each in pending]
        for path in (*files, *(f".heartbeat/{each.requested}" for each in pending)):
            if (found := self.path / ".hoodie" / path).exists():
                os.utime(found, (0, 0))

    def newest(self) -> str:
        return look(self.path).timeline.writes()[-1].requested


def scan_of(life: ZooTable) -> ColumnStatsScan:
    return ColumnStatsScan(life.storage, read_table_config(life.storage), life.schema, list(life.indexed))
