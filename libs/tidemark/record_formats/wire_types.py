"""Makes the msgspec type of a table's JSON records from the table's schema.

msgspec checks types while it decodes, so a record that does not fit the schema fails as a whole, and alone.
Every top-level column may be missing or null here: required columns are checked later, on columns, because
deletes need fewer than upserts. In nested records the schema's nullability is checked at once.

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
"""The path of the record itself in msgspec's errors."""
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
    """The attribute of the field at this position. Column names are not used: they may be Python keywords."""
    return f"f{index}"


def extra_attribute(index: int) -> str:
    """The attribute of a field that the type has although the schema lacks it."""
    return f"x{index}"


def inner_path(path: str, name: str) -> str:
    """The path of an object's field."""
    return f"{path}.{name}"


def item_path(path: str) -> str:
    """The path of an array's items, or of a map's values."""
    return f"{path}[...]"


@dataclass(frozen=True)
class Unknowns:
    """How fields that the schema lacks are decoded.

    ``forbid``: decoding a record that has one fails. ``extras``: path of an object -> names of such fields
    that its type has nevertheless, as raw bytes or UNSET.
    """

    forbid: bool
    extras: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def members(self, path: str) -> list[tuple[str, str]]:
        """(attribute, name) of each extra field of the object at this path."""
        return [(extra_attribute(i), name) for i, name in enumerate(self.extras.get(path, ()))]


def record_type(
    schema: pa.Schema,
    delete_field: str | None,
    unknowns: Unknowns,
    wires: Mapping[str, Any] | None = None,
) -> type[msgspec.Struct]:
    """Makes the type of one record; field i of the schema is attribute `attribute(i)`.

    A ``delete_field`` that is no column becomes one more attribute, the last: true or false, also as text,
    as in Debezium's flattened events (`__deleted`). ``wires``: column -> its msgspec type, where it is
    written in another way than the table above says. Raises SchemaError for a column type that JSON cannot
    fill.
    """
    given = wires or {}
    fields = [
        (
            column.name,
            given[column.name]
            if column.name in given
            else _value_type(column.type, unknowns, inner_path(ROOT, column.name)),
        )
        for column in schema
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
    for i, field_ in enumerate(fields):
        wire = _element_type(field_, unknowns, inner_path(path, field_.name))
        members.append((attribute(i), wire, None) if field_.nullable else (attribute(i), wire))
    extras = unknowns.members(path)
    members += [(extra, _EXTRA, msgspec.UNSET) for extra, _ in extras]
    return msgspec.defstruct(
        "NestedRecord",
        members,
        rename={attribute(i): field_.name for i, field_ in enumerate(fields)} | dict(extras),
        forbid_unknown_fields=unknowns.forbid,
        kw_only=True,
        gc=False,
    )
