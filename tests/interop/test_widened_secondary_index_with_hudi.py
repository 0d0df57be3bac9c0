"""A column with a secondary index is widened by Hudi on Spark, int to long to string, which Hudi refuses but
for one option: behind the widening, our epochs and compactions, and Spark's further writes, look-ups by the
index find what a scan of all files finds, in no more files than have it.

`make services-interop`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError

from tests.interop.judge import HudiJudge
from tests.interop.ruled_table import look
from tests.interop.shared_life import SharedTable
from tests.interop.spark_operations import COMPACTS_INDEX
from tests.interop.test_secondary_index_of_epochs_with_hudi import SEED, Asked
from tests.simulation.scripted_tagger import TABLE, Row
from tidemark.epoch_protocol.service_entries import ServiceKind
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.table_config import TableType
from tidemark.table_verification.verify import verify_table

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif("TIDEMARK_SERVICES" not in os.environ, reason="make services-interop"),
]

GROUPS: Final = 5
FIELDS: Final = [("id", pa.string()), ("day", pa.string()), ("ts", pa.int64())]
LONG: Final = 2**40
NOWHERE: Final = "77"
WIDENS: Final = {"hoodie.datasource.write.schema.allow.auto.evolution.column.drop": "true"}


class Counters(SharedTable):
    """Rows of ours have ints, which is what is tagged; Spark's have what the column is by then. In the model
    each value is its text.
    """

    def __init__(self, folder: Path, table_type: TableType) -> None:
        self.kind: pa.DataType = pa.int32()
        self.newest: list[Any] = []
        super().__init__(folder, table_type, GROUPS, pa.schema([*FIELDS, ("v", self.kind)]), SEED)

    def new_row(self, key: str, group: int) -> Row:
        value = self.draw.choice((-7, 0, 5, 50, None, 100 + self.epochs * GROUPS + group))
        return {"id": key, "day": f"d{group % 3}", "ts": self.epochs, "v": value}

    def widen(self, kind: pa.DataType) -> None:
        """From now on Spark's rows and our compactions have this type."""
        self.kind = kind
        self.schema = TableSchema.from_arrow(TABLE, pa.schema([*FIELDS, ("v", kind)]))

    def their_row(self, key: str, group: int) -> Row:
        row = self.new_row(key, group)
        return {**row, "v": self._wide(row["v"])}

    def _wide(self, number: Any) -> Any:
        if number is None:
            return None
        if self.kind == pa.int64():
            return self.draw.choice((number, number + LONG))
        return self.draw.choice((str(number), f"0{number}", f"{number} or so"))

    def theirs(self, new: Sequence[str]) -> pa.Table:
        rows = super().theirs(new)
        self.newest = rows["v"].to_pylist()
        return rows

    def texts(self) -> dict[str, str | None]:
        return {key: _text(row["v"]) for key, row in self.model.items()}


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


class AskedByText(Asked):
    """Asks for values by their texts."""

    life: Counters

    def newest(self) -> str:
        return look(self.path).timeline.writes()[-1].requested

    def finds(self, stage: str) -> None:
        texts = self.life.texts()
        found = {row["id"]: _text(row["v"]) for row in self._judge.snapshot(self.path)}
        assert found == texts, stage
        verified = verify_table(self.life.storage, lambda _: None)
        assert verified.agrees, (stage, verified.findings.examples)
        keys_of: dict[str, set[str]] = {NOWHERE: set()}
        for key, text in texts.items():
            if text is not None:
                keys_of.setdefault(text, set()).add(key)
        # What Spark wrote is newest: of that a value is always asked for.
        several = self.life.draw.sample(sorted(keys_of), 3)
        several += [text for text in map(_text, self.life.newest) if text is not None]
        for text in dict.fromkeys([NOWHERE, *several]):
            self._finds(stage, f"v = {self._literal(text)}", keys_of.get(text, set()))
        literals = ", ".join(map(self._literal, several))
        self._finds(stage, f"v IN ({literals})", set().union(*(keys_of.get(text, set()) for text in several)))

    def _literal(self, text: str) -> str:
        return f"'{text}'" if self.life.kind == pa.string() else f"{text}L"

    def _finds(self, stage: str, condition: str, keys: set[str]) -> None:
        found, files = self._look_up(condition)
        assert found == keys, (stage, condition, keys - found, found - keys)
        assert files <= len(self._groups_of(keys)), (stage, condition)


@pytest.mark.parametrize("table_type", list(TableType), ids=lambda each: each.value)
def test_look_ups_by_a_column_that_spark_widens_find_all_rows(
    judge: HudiJudge, tmp_path: Path, table_type: TableType
) -> None:
    asked = AskedByText(judge, Counters(tmp_path / "t", table_type), ("v",))
    life = asked.life
    life.epochs_of_ours(3)
    asked.make("v")
    life.epochs_of_ours(2)
    for kind in (pa.int64(), pa.string()):
        life.widen(kind)
        refused(asked)
        life.epochs_of_ours(1)
        asked.upserts(f"{kind}-0", **WIDENS)
        asked.finds(f"Spark's widening to {kind}")
        life.epochs_of_ours(2)
        asked.finds(f"epochs behind {kind}")
        asked.upserts(f"{kind}-1", **COMPACTS_INDEX)
        asked.finds(f"Spark's upsert of {kind}")
        life.epochs_of_ours(1)
        if table_type is TableType.MERGE_ON_READ:
            life.until_done(ServiceKind.COMPACT_DATA)
        asked.finds(f"all of {kind}")
    asked.spark.close()


def refused(asked: AskedByText) -> None:
    """Without the option Hudi commits nothing."""
    model, newest = dict(asked.life.model), asked.newest()
    with pytest.raises(Py4JJavaError, match="Please drop the secondary index"):
        asked.upserts("refused")
    asked.life.model = model
    assert asked.newest() == newest
