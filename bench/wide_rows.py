"""The benchmark's input with other numbers of columns: key, partition and ordering value alone, or many."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bench.workload import Workload

LEAST: Final = ("id", "region", "ts")
_AVRO: Final = {"string": "string", "int64": "long", "int32": "int", "double": "double"}
_KINDS: Final = (pa.int64(), pa.float64(), pa.int32(), pa.string())


class WideWorkload(Workload):
    """A `Workload` whose rows have `columns` columns: 3, or its own seven and further ones of random longs,
    doubles, ints and texts of 16 characters in turn.
    """

    def __init__(self, keys: int, columns: int, seed: int, partitions: int = 16) -> None:
        super().__init__(keys, partitions, seed)
        self._columns = columns
        self._wide = np.random.default_rng(seed)

    def _rows(self, numbers: npt.NDArray[np.int64]) -> pa.Table:
        rows = super()._rows(numbers)
        if self._columns == len(LEAST):
            return rows.select(LEAST)
        for number in range(rows.num_columns, self._columns):
            values = pa.array(self._wide.integers(0, 1_000_000_000, rows.num_rows))
            kind = _KINDS[number % len(_KINDS)]
            if kind == pa.string():
                column = pa.compute.binary_join_element_wise("text ", values.cast(kind), "")
            else:
                column = values.cast(kind)
            rows = rows.append_column(f"c{number:02d}", column)
        return rows

    def schema(self) -> pa.Schema:
        """The columns of a row."""
        return self._rows(np.arange(0, dtype=np.int64)).schema


def avro_schema(rows: pa.Schema) -> dict[str, Any]:
    """The table's schema: every column may be null."""
    fields = [
        {"name": field.name, "type": ["null", _AVRO[str(field.type)]], "default": None} for field in rows
    ]
    return {"type": "record", "name": "bench", "fields": fields}
