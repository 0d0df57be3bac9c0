"""Batches of JSON records to Arrow columns by the table's schema.

The decoder runs over the whole batch in C; a record that fails stops it, is set aside with its reason, and
the run goes on behind it. One bad record never spoils its batch. When a field stands twice in an object the
last one holds; fields that the schema lacks are dropped or refused (``input.unknown_fields``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hudi_format.schema import IS_DELETED_FIELD, SchemaError, TableSchema
from index_assigner.shuffle.arrow_columns import convert_column
from index_assigner.shuffle.refusals import Reason, Refusal
from index_assigner.shuffle.wire_types import attribute, record_type

Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

_PATH: Final = re.compile(r" - at `\$\.?(?P<path>[^`]*)`$")
_DETAIL_CHARACTERS_MAX: Final = 300


@dataclass(frozen=True)
class DecodedRecords:
    """Sound records as columns of the user's schema, all nullable, in the order given.

    ``positions``: which record of the batch each row is; ``deletes``: its delete field is true. Every
    position is in ``positions`` or in ``refused``, never in both.
    """

    rows: pa.RecordBatch
    positions: Int64Array
    deletes: BoolArray
    refused: list[Refusal]


class JsonDecoder:
    """Decodes records of one table. Made once; holds no state between batches."""

    def __init__(self, schema: TableSchema, delete_field: str | None, forbid_unknown: bool) -> None:
        """Raises `SchemaError` for a delete field that is a column of another type than boolean."""
        self._arrow = pa.schema([field.with_nullable(True) for field in schema.arrow])
        named = delete_field
        if named is None and IS_DELETED_FIELD in self._arrow.names:
            named = IS_DELETED_FIELD
        if named in self._arrow.names and self._arrow.field(named).type != pa.bool_():
            raise SchemaError(
                f"input.delete_field {named} is a column of type {self._arrow.field(named).type}"
            )
        self._delete_at = None
        if named is not None:
            at = self._arrow.get_field_index(named)
            self._delete_at = attrgetter(attribute(at if at >= 0 else len(self._arrow)))
        self._decode = msgspec.json.Decoder(record_type(self._arrow, named, forbid_unknown)).decode

    def decode(self, values: Sequence[bytes], positions: Int64Array) -> DecodedRecords:
        """Decodes the values; ``positions`` says which record of the caller's batch each of them is."""
        records, refused_at, refused = self._objects(values, positions)
        kept = np.delete(positions, refused_at)
        columns, unfit = [], np.zeros(len(records), np.bool_)
        for i, field in enumerate(self._arrow):
            found = list(map(attrgetter(attribute(i)), records))
            column = convert_column(found, field.type) if found else convert_column([None], field.type)
            columns.append(column.array if found else column.array.slice(0, 0))
            for at in column.unfit:
                if not unfit[at]:
                    unfit[at] = True
                    detail = f"field {field.name}: {_shown(found[at])} does not fit {field.type}"
                    refused.append(Refusal(int(kept[at]), Reason.MISTYPED_FIELD, detail))
        rows = pa.RecordBatch.from_arrays(columns, schema=self._arrow)
        deletes = self._deletes(records)
        if unfit.any():
            rows = rows.filter(pa.array(~unfit))
            kept, deletes = kept[~unfit], deletes[~unfit]
        return DecodedRecords(rows, kept, deletes, refused)

    def _objects(
        self, values: Sequence[bytes], positions: Int64Array
    ) -> tuple[list[Any], list[int], list[Refusal]]:
        records: list[Any] = []
        refused_at: list[int] = []
        refused: list[Refusal] = []
        remaining = iter(values)
        while True:
            try:
                # What was decoded before a failure stays in the list; the iterator stands behind it.
                records.extend(map(self._decode, remaining))
                return records, refused_at, refused
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                at = len(records) + len(refused_at)
                refused_at.append(at)
                reason, detail = _explained(error)
                refused.append(Refusal(int(positions[at]), reason, detail))

    def _deletes(self, records: list[Any]) -> BoolArray:
        if self._delete_at is None:
            return np.zeros(len(records), np.bool_)
        flags = map(self._delete_at, records)
        return np.fromiter((flag is True for flag in flags), np.bool_, len(records))


def _explained(error: Exception) -> tuple[Reason, str]:
    text = str(error)
    if not isinstance(error, msgspec.ValidationError):
        reason, detail = Reason.NOT_JSON, f"not JSON: {text}"
    elif text.startswith("Object contains unknown field"):
        reason, detail = Reason.UNKNOWN_FIELD, f"{text}, which the table's schema lacks"
    elif (found := _PATH.search(text)) is None:
        reason, detail = Reason.WRONG_SHAPE, f"a record has to be a JSON object: {text}"
    else:
        reason, detail = Reason.MISTYPED_FIELD, f"field {found['path']}: {text[: found.start()]}"
    return reason, detail[:_DETAIL_CHARACTERS_MAX]


def _shown(value: Any) -> str:
    return repr(value)[:80]
