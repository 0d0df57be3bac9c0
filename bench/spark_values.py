"""The rows of values in a column, as Spark reads them from a table: by its indexes, or in a full scan."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.interop.judge import HudiJudge


@dataclass(frozen=True)
class SparkAnswer:
    """`keys`: of the rows, sorted. `seconds`: from the query to the rows. `files`: how many were read."""

    keys: list[str]
    seconds: float
    files: int


class SparkValues:
    """Asks one table for values of one column."""

    def __init__(self, judge: HudiJudge, table: Path, column: str) -> None:
        self._judge, self._table, self._column = judge, table, column

    def ask(self, values: Sequence[str | int], *, skipping: bool) -> SparkAnswer:
        """The keys of all rows that have one of the values. `skipping`: by Hudi's data skipping, which asks
        the secondary index of the column.
        """
        options = {"hoodie.metadata.enable": "true", "hoodie.enable.data.skipping": str(skipping).lower()}
        # As text: a long list would go through Py4J value by value, which is not Hudi's time.
        condition = f"{self._column} in ({', '.join(map(_literal, values))})"
        started_s = time.perf_counter()
        frame = self._judge.spark.read.format("hudi").options(**options).load(str(self._table))
        rows, files = self._judge.rows_and_files(frame.where(condition).select("id"))
        seconds = time.perf_counter() - started_s
        return SparkAnswer(sorted(row["id"] for row in rows), seconds, files)


def _literal(value: str | int) -> str:
    return f"'{value}'" if isinstance(value, str) else str(value)
