"""Hudi on Spark makes an index that Tidemark does not keep: the stream halts and says what drops it. That is
executed literally, and the stream goes on.

`make services-interop`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from tests.interop.judge import HudiJudge
from tests.interop.verdict import assert_record_index_is_data
from tests.simulation.commit_path import CommitPath
from tests.simulation.scripted_epochs import first_epoch, row, second_epoch
from tests.simulation.scripted_tagger import SCHEMA, SHARDS, TABLE
from tidemark.hudi_format.commit.foreign_writers import foreign_writer_options
from tidemark.hudi_format.index_definitions import read_index_definitions
from tidemark.hudi_format.table_config import TableType, read_table_config
from tidemark.hudi_format.validation import check_servable
from tidemark.table_verification.verify import verify_table

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif("TIDEMARK_SERVICES" not in os.environ, reason="make services-interop"),
]

STATEMENT: Final = re.compile(r"DROP INDEX \w+ ON \w+")
BLOOM: Final = {"hoodie.metadata.index.bloom.filter.enable": "true"}


class Beside:
    """A table with an epoch of ours, and Spark with the options that `tidemark table describe` prints."""

    def __init__(self, judge: HudiJudge, folder: Path, table_type: TableType) -> None:
        self.judge, self.path = judge, CommitPath(folder, table_type, ordered=True)
        first_epoch(self.path)
        self.path.run_until_idle()
        self.table = Path(self.path.storage.base_uri)
        self.options = foreign_writer_options(self.path.storage.base_uri, SHARDS)

    @property
    def listed(self) -> set[str]:
        return set(read_table_config(self.path.storage).metadata_partitions)

    @contextmanager
    def session(self) -> Iterator[Callable[[str], Any]]:
        """The table has its own name in the catalog, and the session the options."""
        spark = self.judge.spark
        spark.sql(f"create table {TABLE} using hudi location '{self.table}'")
        try:
            for key, value in self.options.items():
                spark.sql(f"set {key}={value}")
            yield spark.sql
        finally:
            for key in self.options:
                spark.sql(f"reset {key}")
            spark.sql(f"drop table {TABLE}")

    def make(self, statement: str) -> None:
        if statement:
            with self.session() as execute:
                execute(statement)
            return
        theirs = pa.Table.from_pylist([row("b", 0, 0, "d1")], schema=SCHEMA.arrow)
        self.judge.upsert(self.table, theirs, {**self.options, **BLOOM})

    def halts(self) -> str:
        """What the coordinator says."""
        coordinator = self.path.coordinator
        assert coordinator is not None
        for _ in range(12):
            coordinator.step(0.0)
        assert coordinator.seen.halted is not None
        return coordinator.seen.halted

    def goes_on(self) -> None:
        """The second epoch is committed, tagged anew if the coordinator wants that."""
        coordinator = self.path.coordinator
        assert coordinator is not None
        generation = self.path.state().generation
        coordinator.retry(2)
        for _ in range(12):
            self.path.step()
            if self.path.state().generation > generation:
                self.path.tagger.claim_anew(self.path.state())
                second_epoch(self.path)
                break
        self.path.run_until_idle()


MADE: Final = {
    "expr_index_by_day": "create index by_day on t using column_stats(ts) "
    "options(expr='from_unixtime', format='yyyy-MM-dd')",
    "expr_index_by_id": "create index by_id on t using bloom_filters(id) options(expr='lower')",
    "bloom_filters": "",
}
"""Name -> what makes it; bloom filters are made by a write."""


@pytest.mark.parametrize("name", MADE)
def test_the_way_out_that_a_refusal_names_is_one(judge: HudiJudge, tmp_path: Path, name: str) -> None:
    table_type = TableType.COPY_ON_WRITE if name == "expr_index_by_id" else TableType.MERGE_ON_READ
    beside = Beside(judge, tmp_path, table_type)
    storage = beside.path.storage
    beside.make(MADE[name])
    assert beside.listed == {"files", "record_index", name}
    second_epoch(beside.path)
    [statement] = STATEMENT.findall(beside.halts())
    assert statement == f"DROP INDEX {name} ON {TABLE}"
    with beside.session() as execute:
        execute(statement)
    assert beside.listed == {"files", "record_index"}
    assert name not in read_index_definitions(storage)
    assert not storage.exists(f".hoodie/metadata/{name}")
    # What adopting asks.
    check_servable(storage)
    beside.goes_on()
    assert beside.path.state().committed.epoch == 2
    assert verify_table(storage, lambda _: None).agrees
    assert_record_index_is_data(judge, beside.table)
    # It stays away in Spark's next write.
    theirs = pa.Table.from_pylist([row("c", 9, 9, "d2")], schema=SCHEMA.arrow)
    judge.upsert(beside.table, theirs, beside.options)
    assert beside.listed == {"files", "record_index"}
    assert_record_index_is_data(judge, beside.table)
