"""Fields of JSON records that the table's schema lacks: which records have them.

A decoder that forbids unknown fields stops at the first one and names it. From then on the records' type has
that field as well, as bytes that nobody parses, and a look at that one attribute tells which records have it.
So a batch without such fields costs nothing, and one with three of them costs three more columns.

What is learnt is bounded: beyond `DROPPED_MAX` fields one name, `MORE_FIELDS`, says at the first record that
has another one that there are more, and from then on those are dropped uncounted.
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
# What msgspec does not take as the name of a field, and what would be no name to show.
_UNNAMEABLE: Final = re.compile(r'["\\\x00-\x1f]')
_NAME_CHARACTERS_MAX: Final = 200
_Present = Callable[[Any], bool]


class LearntFields:
    """The unknown fields that one decoder has met. ``by_struct``: their names by the path of the object that
    holds them, as msgspec writes it (`$.customer`, `$.items[...]`).
    """

    def __init__(self, columns: pa.Schema) -> None:
        self._columns = columns
        self._structs = {ROOT, *_struct_paths(columns)}
        self.by_struct: dict[str, list[str]] = {}

    @property
    def is_full(self) -> bool:
        """No other field is learnt."""
        return sum(map(len, self.by_struct.values())) >= DROPPED_MAX

    @property
    def inner_fields(self) -> int:
        """At most so many are learnt of one kind of inner objects."""
        return max((len(names) for path, names in self.by_struct.items() if path != ROOT), default=0)

    def learn(self, error: Exception, wanted: bool = True) -> tuple[str, bool]:
        """The field that the decoder stopped at, as it is shown, and whether it was learnt: a type that has
        it takes the record. Not learnt: what cannot be the name of a field, what is beyond the limit, and
        what is not ``wanted``.
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
        """By the shown name of a learnt field: the positions of the records that have it. ``positions`` are
        the records'.
        """
        found = {}
        for path, names in self.by_struct.items():
            for i, name in enumerate(names):
                has = self._has(path, extra_attribute(i), records)
                if has.any():
                    found[shown_name(path, name)] = positions[has]
        return found

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
    """The field's name for people: `customer.zip`, `items[].price`; what is unprintable is escaped."""
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
    """Tells of a value at ``path`` whether the object at ``wanted`` in it, or one of them, has the field;
    None: ``wanted`` is not below.
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
