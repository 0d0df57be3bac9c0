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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated, Any, Final, Literal

import msgspec
import pyarrow as pa

from tidemark.hudi_format.schema import SchemaError

ROOT: Final = "$"
"""The path of a record as a whole, as msgspec's errors have it."""
FLOAT_MAX: Final = 3.4028234663852886e38
_INT: Final = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
LONG: Final = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_FLOAT: Final = Annotated[float, msgspec.Meta(ge=-FLOAT_MAX, le=FLOAT_MAX)]
_EXTRA: Final = msgspec.Raw | msgspec.UnsetType
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


def extra_attribute(index: int) -> str:
    """The attribute of a field that the schema lacks and the type has all the same."""
    return f"x{index}"


def inner_path(path: str, name: str) -> str:
    """The path of an object's field."""
    return f"{path}.{name}"


def item_path(path: str) -> str:
    """The path of an array's items, or of a map's values."""
    return f"{path}[...]"


@dataclass(frozen=True)
class Unknowns:
    """What becomes of fields that the schema lacks. ``forbid``: a record that has one is no record.
    ``extras``: names that the type has all the same, by the path of their object: raw bytes, or UNSET.
    """

    forbid: bool
    extras: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def members(self, path: str) -> list[tuple[str, str]]:
        """Attribute and name of each extra field of the object."""
        return [(extra_attribute(i), name) for i, name in enumerate(self.extras.get(path, ()))]


def record_type(
    schema: pa.Schema,
    delete_field: str | None,
    unknowns: Unknowns,
    wires: Mapping[str, Any] | None = None,
) -> type[msgspec.Struct]:
    """The type of one record; field i of the schema is attribute `attribute(i)`.

    A ``delete_field`` that is no column becomes one attribute more, the last: true or false, also as text, as
    Debezium's flattened events have them (`__deleted`). ``wires``: types of columns
    that are not written as the table above says.
    """
    given = wires or {}
    fields = [
        (
            each.name,
            given[each.name]
            if each.name in given
            else _value_type(each.type, unknowns, inner_path(ROOT, each.name)),
        )
        for each in schema
    ]
    extras = unknowns.members(ROOT)
    if delete_field is not None and delete_field not in schema.names:
        fields.append((delete_field, bool | Literal["true", "false"]))
    return msgspec.defstruct(
        "Record",
        [
            *((attribute(i), wire | None, None) for i, (_, wire) in enumerate(fields)),
            *((extra, _EXTRA, msgspec.UNSET) for extra, _ in extras),
        ],
        rename={attribute(i): name for i, (name, _) in enumerate(fields)} | dict(extras),
        forbid_unknown_fields=unknowns.forbid,
        gc=False,
    )


def _value_type(arrow: pa.DataType, unknowns: Unknowns, path: str) -> Any:
    if arrow in _SCALARS:
        return _SCALARS[arrow]
    if pa.types.is_decimal128(arrow):
        return Decimal
    if pa.types.is_struct(arrow):
        return _nested_record(arrow, unknowns, path)
    if pa.types.is_map(arrow):
        return dict[str, _element_type(arrow.item_field, unknowns, item_path(path))]  # type: ignore[misc]
    if pa.types.is_list(arrow):
        return list[_element_type(arrow.value_field, unknowns, item_path(path))]  # type: ignore[misc]
    raise SchemaError(f"JSON input cannot fill a column of type {arrow}")


def _element_type(element: pa.Field, unknowns: Unknowns, path: str) -> Any:
    wire = _value_type(element.type, unknowns, path)
    return wire | None if element.nullable else wire


def _nested_record(arrow: pa.StructType, unknowns: Unknowns, path: str) -> type[msgspec.Struct]:
    fields = [arrow.field(i) for i in range(arrow.num_fields)]
    members: list[Any] = []
    for i, each in enumerate(fields):
        wire = _element_type(each, unknowns, inner_path(path, each.name))
        members.append((attribute(i), wire, None) if each.nullable else (attribute(i), wire))
    extras = unknowns.members(path)
    members += [(extra, _EXTRA, msgspec.UNSET) for extra, _ in extras]
    return msgspec.defstruct(
        "NestedRecord",
        members,
        rename={attribute(i): each.name for i, each in enumerate(fields)} | dict(extras),
        forbid_unknown_fields=unknowns.forbid,
        kw_only=True,
        gc=False,
    )
