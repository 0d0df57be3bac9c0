"""Tries inferred columns on the values that they were inferred from, by the decoder that the assigners use.
So no single column makes most records dead letters.
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

# Up to this share the records with refused values count as broken, and will become dead letters.
_STRAYS_PERCENT: Final = 5


def tried_columns(rows: Sequence[Row]) -> Columns:
    """The columns of JSON rows. A column whose type refuses values becomes a string if a string takes them
    all. Otherwise, if more than `_STRAYS_PERCENT` of its values would be refused, it is left out with a note.
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
    """How many of the values a column of this type refuses."""
    fields = [{"name": name, "type": ["null", avro], "default": None}]
    schema = TableSchema.from_avro(json.dumps({"type": "record", "name": "sample", "fields": fields}))
    decoder = JsonDecoder(schema, None, UnknownFields.IGNORE)
    records = [json.dumps({name: value}).encode() for value in values]
    return len(decoder.decode(records, np.arange(len(records), dtype=np.int64)).refused)


def _named(avro: Avro) -> str:
    return avro if isinstance(avro, str) else str(avro.get("logicalType", avro["type"]))
