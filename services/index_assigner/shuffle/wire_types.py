"""What an input record of a table looks like as JSON: a msgspec type made from the table's schema.

msgspec checks types while it decodes, so a record either is of the schema or fails as a whole, by itself.
Every top-level column may be missing or null here; what must be there is judged on columns, later, because
deletes need less than upserts. Inside nested records the schema's nullability is checked at once.

========================== =========================================================================
string, int, long, boolean the JSON type; whole numbers in range, never ``1.0``
float, double              a JSON number in range
bytes                      base64 text
date                       ``yyyy-MM-dd``, or days since 1970
timestamps                 ISO 8601 text, or the number that Avro would hold (micros or millis)
decimal                    text or number, exactly as written
array, map, record         array, object, object
========================== =========================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any, Final, Literal

import msgspec
import pyarrow as pa

from hudi_format.schema import SchemaError

FLOAT_MAX: Final = 3.4028234663852886e38
_INT: Final = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
LONG: Final = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_FLOAT: Final = Annotated[float, msgspec.Meta(ge=-FLOAT_MAX, le=FLOAT_MAX)]
_SCALARS: Final[Mapping[pa.DataType, Any]] = {
    pa.string(): str,
    pa.int32(): _INT,
    pa.int64(): LONG,
    pa.float32(): _FLOAT,
    pa.float64(): float,
    pa.bool_(): bool,
    pa.binary(): bytes,
    pa.date32(): str | _INT,
    pa.timestamp("us", "UTC"): str | LONG,
    pa.timestamp("ms", "UTC"): str | LONG,
    pa.timestamp("us"): str | LONG,
}


def attribute(index: int) -> str:
    """The attribute that holds the field at this place: column names may be Python keywords."""
    return f"f{index}"


def record_type(
    schema: pa.Schema,
    delete_field: str | None,
    forbid_unknown: bool,
    wires: Mapping[str, Any] | None = None,
) -> type[msgspec.Struct]:
    """The type of one record; field i of the schema is attribute `attribute(i)`.

    A ``delete_field`` that is no column becomes one attribute more, the last: true or false, also as text, as
    Debezium's flattened events have them (`__deleted`). ``wires``: types of columns
    that are not written as the table above says.
    """
    given = wires or {}
    fields = [
        (field.name, given[field.name] if field.name in given else _value_type(field.type, forbid_unknown))
        for field in schema
    ]
    if delete_field is not None and delete_field not in schema.names:
        fields.append((delete_field, bool | Literal["true", "false"]))
    return msgspec.defstruct(
        "Record",
        [(attribute(i), wire | None, None) for i, (_, wire) in enumerate(fields)],
        rename={attribute(i): name for i, (name, _) in enumerate(fields)},
        forbid_unknown_fields=forbid_unknown,
        gc=False,
    )


def _value_type(arrow: pa.DataType, forbid_unknown: bool) -> Any:
    if arrow in _SCALARS:
        return _SCALARS[arrow]
    if pa.types.is_decimal128(arrow):
        return Decimal
    if pa.types.is_struct(arrow):
        return _nested_record(arrow, forbid_unknown)
    if pa.types.is_map(arrow):
        return dict[str, _element_type(arrow.item_field, forbid_unknown)]  # type: ignore[misc]
    if pa.types.is_list(arrow):
        return list[_element_type(arrow.value_field, forbid_unknown)]  # type: ignore[misc]
    raise SchemaError(f"JSON input cannot fill a column of type {arrow}")


def _element_type(field: pa.Field, forbid_unknown: bool) -> Any:
    wire = _value_type(field.type, forbid_unknown)
    return wire | None if field.nullable else wire


def _nested_record(arrow: pa.StructType, forbid_unknown: bool) -> type[msgspec.Struct]:
    fields = [arrow.field(i) for i in range(arrow.num_fields)]
    members: list[Any] = []
    for i, field in enumerate(fields):
        wire = _element_type(field, forbid_unknown)
        members.append((attribute(i), wire, None) if field.nullable else (attribute(i), wire))
    return msgspec.defstruct(
        "NestedRecord",
        members,
        rename={attribute(i): field.name for i, field in enumerate(fields)},
        forbid_unknown_fields=forbid_unknown,
        kw_only=True,
        gc=False,
    )
