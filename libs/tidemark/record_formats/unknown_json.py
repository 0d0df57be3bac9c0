"""Finds which JSON records have fields that the table's schema lacks.

msgspec stops at an unknown field and names it. The field is then *learnt*: the records' type gets it as an
attribute of raw bytes, which are not parsed. From then on one attribute per record tells which records have
the field. So a batch without unknown fields costs nothing extra, and three such fields cost three more
columns.

At most `DROPPED_MAX` fields are learnt. The first record with another one is counted as `MORE_FIELDS`;
after that unknown fields that were not learnt are dropped without being counted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from operator import attrgetter, is_not
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from tidemark.record_formats.decoder import DROPPED_MAX, Int64Array
from tidemark.record_formats.wire_types import ROOT, attribute, extra_attribute, inner_path, item_path

_STARTS: Final = "Object contains unknown field `"
_INSIDE: Final = "` - at `"
_INDEX: Final = re.compile(r"\[\d+\]")
# Characters that msgspec does not accept in the name of a field, or that cannot be shown.
_UNNAMEABLE: Final = re.compile(r'["\\\x00-\x1f]')
_NAME_CHARACTERS_MAX: Final = 200
_Present = Callable[[Any], bool]


class LearntFields:
    """The unknown fields that one decoder has learnt.

    ``by_struct``: path of the object, as in msgspec's errors (`$.customer`, `$.items[...]`) -> names of its
    fields.
    """

    def __init__(self, columns: pa.Schema) -> None:
        self._columns = columns
        self._structs = {ROOT, *_struct_paths(columns)}
        self.by_struct: dict[str, list[str]] = {}

    @property
    def is_full(self) -> bool:
        """Whether the limit is reached, so no other field is learnt."""
        return sum(map(len, self.by_struct.values())) >= DROPPED_MAX

    @property
    def inner_fields(self) -> int:
        """The greatest number of fields learnt of one type of inner objects."""
        return max((len(names) for path, names in self.by_struct.items() if path != ROOT), default=0)

    def learn(self, error: Exception, wanted: bool = True) -> tuple[str, bool]:
        """Learns the field at which the decoder stopped.

        Returns its name as shown, and whether it was learnt. It is not learnt if msgspec cannot have a
        field of that name, if the limit is reached, or if it is not ``wanted``.
        """
        text = str(error).removeprefix(_STARTS).removesuffix("`")
        name, _, path = text.rpartition(_INSIDE)
        path = _INDEX.sub("[...]", path)
        if not name or path not in self._structs:
            name, path = text, ROOT
        shown = shown_name(path, name)
        known = self.by_struct.get(path, [])
        if (
            not wanted
            or name in known
            or len(name) > _NAME_CHARACTERS_MAX
            or _UNNAMEABLE.search(name)
            or self.is_full
        ):
            return shown, False
        self.by_struct[path] = [*known, name]
        return shown, True

    def found(self, records: Sequence[Any], positions: Int64Array) -> dict[str, Int64Array]:
        """Returns learnt field as shown -> positions of the records that have it.

        ``positions``: of each record in the batch.
        """
        by_name = {}
        for path, names in self.by_struct.items():
            for i, name in enumerate(names):
                has = self._has(path, extra_attribute(i), records)
                if has.any():
                    by_name[shown_name(path, name)] = positions[has]
        return by_name

    def _has(self, path: str, extra: str, records: Sequence[Any]) -> np.ndarray[Any, np.dtype[np.bool_]]:
        if path == ROOT:
            values = map(getattr, records, repeat(extra), repeat(msgspec.UNSET))
            return np.fromiter(map(is_not, values, repeat(msgspec.UNSET)), np.bool_, len(records))
        for i, column in enumerate(self._columns):
            present = _presence(column.type, inner_path(ROOT, column.name), path, extra)
            if present is not None:
                values = map(attrgetter(attribute(i)), records)
                return np.fromiter(map(present, values), np.bool_, len(records))
        raise AssertionError(path)


def is_unknown_field(error: Exception) -> bool:
    """Whether a decoder that forbids unknown fields stopped at one."""
    return isinstance(error, msgspec.ValidationError) and str(error).startswith(_STARTS)


def shown_name(path: str, name: str) -> str:
    """The field's name for people: `customer.zip`, `items[].price`; unprintable characters are escaped."""
    before = path.removeprefix(ROOT).removeprefix(".").replace("[...]", "[]")
    whole = f"{before}.{name}" if before else name
    cut = whole if len(whole) <= _NAME_CHARACTERS_MAX else whole[:_NAME_CHARACTERS_MAX] + "…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in cut)


def _struct_paths(columns: pa.Schema) -> Iterator[str]:
    for column in columns:
        yield from _paths_within(column.type, inner_path(ROOT, column.name))


def _paths_within(arrow: pa.DataType, path: str) -> Iterator[str]:
    if pa.types.is_struct(arrow):
        yield path
        for i in range(arrow.num_fields):
            yield from _paths_within(arrow.field(i).type, inner_path(path, arrow.field(i).name))
    elif pa.types.is_map(arrow):
        yield from _paths_within(arrow.item_type, item_path(path))
    elif pa.types.is_list(arrow):
        yield from _paths_within(arrow.value_type, item_path(path))


def _presence(arrow: pa.DataType, path: str, wanted: str, extra: str) -> _Present | None:
    """Returns a function that says whether, in a value at ``path``, an object at ``wanted`` has the
    attribute.

    None: ``wanted`` is not at or below ``path``.
    """
    if path == wanted and pa.types.is_struct(arrow):
        return lambda value: getattr(value, extra, msgspec.UNSET) is not msgspec.UNSET
    if pa.types.is_struct(arrow):
        for i in range(arrow.num_fields):
            inner = _presence(arrow.field(i).type, inner_path(path, arrow.field(i).name), wanted, extra)
            if inner is not None:
                return _of_member(attrgetter(attribute(i)), inner)
    elif pa.types.is_map(arrow):
        inner = _presence(arrow.item_type, item_path(path), wanted, extra)
        if inner is not None:
            return _of_any(lambda value: value.values(), inner)
    elif pa.types.is_list(arrow):
        inner = _presence(arrow.value_type, item_path(path), wanted, extra)
        if inner is not None:
            return _of_any(lambda value: value, inner)
    return None


def _of_member(getter: Callable[[Any], Any], inner: _Present) -> _Present:
    return lambda value: value is not None and inner(getter(value))


def _of_any(items: Callable[[Any], Any], inner: _Present) -> _Present:
    return lambda value: value is not None and any(map(inner, items(value)))
