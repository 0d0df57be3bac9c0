"""Inferred columns against the values that they were inferred from, each through the decoder that the
assigners use: a column alone must not keep records from being taken.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from tidemark.config.model import UnknownFields
from tidemark.hudi_format.schema import TableSchema
from tidemark.init.columns import Avro, Columns, Row, infer_columns
from tidemark.record_formats.decode_json import JsonDecoder

# So few are broken records rather than another kind of records: they become dead letters.
_STRAYS_PERCENT: Final = 5


def tried_columns(rows: Sequence[Row]) -> Columns:
    """The columns of JSON rows. One whose type refuses values becomes text where they all are text; where
    more than 5 % of the rows that have a value would be refused it is left out, with a note.
    """
    columns = infer_columns(rows)
    for name, avro in list(columns.types.items()):
        values = [row[name] for row in rows if row.get(name) is not None]
        refused = _refused(name, avro, values)
        if refused and avro != "string" and not _refused(name, "string", values):
            columns.types[name] = "string"
        elif 100 * refused > _STRAYS_PERCENT * len(values):
            columns.leave_out(
                name,
                f"{refused} of {len(values)} values do not fit {_named(avro)}, and no type takes all of them",
            )
    return columns


def _refused(name: str, avro: Avro, values: Sequence[Any]) -> int:
    """How many values a column of this type does not take."""
    fields = [{"name": name, "type": ["null", avro], "default": None}]
    schema = TableSchema.from_avro(json.dumps({"type": "record", "name": "sample", "fields": fields}))
    decoder = JsonDecoder(schema, None, UnknownFields.IGNORE)
    records = [json.dumps({name: value}).encode() for value in values]
    return len(decoder.decode(records, np.arange(len(records), dtype=np.int64)).refused)


def _named(avro: Avro) -> str:
    return avro if isinstance(avro, str) else str(avro.get("logicalType", avro["type"]))
