"""Makes Kafka records of events. The JSON values are joined from columns, because row by row it would be
slow.

Every sound record has a Kafka key, so that all events of a flight go to one input partition and arrive there
in the order in which they were sent. The key is the record key as text or, for the carriers of
``JSON_KEYED``, the JSON of the key fields. These are the two forms that the key of a null value may have.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.demo.events import KEY_FIELDS, TABLE_SCHEMA, key_texts
from tidemark.demo.plan import Breakage

Record = tuple[bytes | None, bytes | None]
DELETE_FIELD = "_deleted"
JSON_KEYED: Final = ("AA", "B6", "US")


def render_records(events: pa.Table) -> list[Record]:
    """The records of the events, in their order: (Kafka key, value), both bytes or None."""
    keys: list[bytes | None] = _kafka_keys(events).cast(pa.binary()).to_pylist()
    values: list[bytes | None] = _values(events).cast(pa.binary()).to_pylist()
    records = list(zip(keys, values, strict=True))
    broken = events["broken"].to_numpy()
    for row in np.flatnonzero((broken == Breakage.NONE) & events["null_value"].to_numpy()):
        records[row] = (keys[row], None)
    for row in np.flatnonzero(broken):
        records[row] = _BREAK[Breakage(broken[row])](keys[row], values[row] or b"")
    return records


def _values(events: pa.Table) -> pa.Array:
    """The JSON object of each event. All rows are joined at once, from constants and columns in turn: of the
    parts '{"carrier":', ['"UA"', '"AA"'], ',"flight":', ['1545', '1141'] two rows are made that begin with
    {"carrier":"UA","flight":1545 and {"carrier":"AA","flight":1141.
    """
    parts: list[Any] = []
    for i, name in enumerate(TABLE_SCHEMA.names):
        parts += [("," if i else "{") + f'"{name}":', _tokens(events[name].combine_chunks())]
    end = pc.if_else(events["deleted"], f',"{DELETE_FIELD}":true}}', "}").combine_chunks()
    return pc.binary_join_element_wise(*parts, end, "", null_handling="replace", null_replacement="null")


def _kafka_keys(events: pa.Table) -> pa.Array:
    parts: list[Any] = []
    for i, name in enumerate(KEY_FIELDS):
        parts += [("," if i else "{") + f'"{name}":', _tokens(events[name].combine_chunks())]
    as_json = pc.binary_join_element_wise(*parts, "}", "")
    json_keyed = pc.is_in(events["carrier"].combine_chunks(), pa.array(JSON_KEYED))
    return pc.if_else(json_keyed, as_json, key_texts(events))


def _tokens(column: pa.Array) -> pa.Array:
    """The JSON of each value of a column; null for null. Texts are not escaped: the source has none that
    would need it (``source`` checks that).
    """
    if pa.types.is_timestamp(column.type):
        naive = column.cast(pa.timestamp("s", "UTC")).cast(pa.timestamp("s")).cast(pa.string())
        return _quoted(pc.binary_replace_slice(naive, start=10, stop=11, replacement="T"), 'Z"')
    if pa.types.is_string(column.type):
        return _quoted(column, '"')
    return column.cast(pa.string())


def _quoted(texts: pa.Array, end: str) -> pa.Array:
    return pc.binary_join_element_wise('"', texts, end, "")


def _edited(**changes: object) -> Callable[[bytes | None, bytes], Record]:
    """A function that breaks a record by overwriting fields of its value."""
    return lambda key, value: (key, json.dumps(json.loads(value) | changes).encode())


def _without_key_fields(_key: bytes | None, value: bytes) -> Record:
    fields = {name: field for name, field in json.loads(value).items() if name not in KEY_FIELDS}
    return None, json.dumps(fields).encode()


_BREAK: Final[dict[Breakage, Callable[[bytes | None, bytes], Record]]] = {
    Breakage.NOT_JSON: lambda key, value: (key, value[: len(value) * 2 // 3]),
    Breakage.NOT_AN_OBJECT: lambda key, value: (key, b"[" + value + b"]"),
    Breakage.NO_KEY_FIELDS: _without_key_fields,
    Breakage.NO_EVENT_TIME: _edited(event_time=None),
    Breakage.MISTYPED_EVENT_TIME: _edited(event_time="soon"),
    Breakage.MISTYPED_DISTANCE: _edited(distance="far"),
    Breakage.PARTITION_OUTSIDE_TABLE: _edited(day="../outside"),
    Breakage.NULL_WITHOUT_KEY: lambda _key, _value: (None, None),
}
