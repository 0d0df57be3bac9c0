"""The secondary index of one column: after every commit its living entries are exactly the live rows', each
in the file group in which readers look for its value.

How many groups there are is what lies on disk, and which one a value has follows from that number
(`tests.hudi_rules.value_entries`): a reader opens that group alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from tests.hudi_rules.value_entries import escaped, group_of, value_part, value_part_of
from tests.simulation.world.checkers.merged import DataFile, Merged
from tests.simulation.world.checkers.model import Row

PROPERTIES: Final = ".hoodie/hoodie.properties"
DEFINITIONS: Final = ".hoodie/.index_defs/index.json"
NAME: Final = "secondary_index_by_value"
FOLDER: Final = f".hoodie/metadata/{NAME}"
_PREFIX: Final = "secondary_index_"
_LISTED: Final = "hoodie.table.metadata.partitions"
_SHOWN: Final = 5


class ValueEntries(NamedTuple):
    """Keys of living entries: those that readers find, and those that lie where nobody looks for them."""

    found: set[str]
    astray: set[str]


def value_entries(
    groups: Merged, records: Callable[[DataFile], Iterable[tuple[str, object]]]
) -> ValueEntries:
    """The living entries of all file groups. ``records``: of a file, in its order; (key, None): a delete."""
    entries = ValueEntries(set(), set())
    for number, (_, files) in enumerate(sorted(groups)):
        living: set[str] = set()
        for file in files:
            for key, value in records(file):
                (living.discard if value is None else living.add)(key)
        for key in living:
            is_found = group_of(value_part_of(key), len(groups)) == number
            (entries.found if is_found else entries.astray).add(key)
    return entries


class SecondaryIndex:
    """``checked``: how many entries were compared with rows, ``nulls``: how many of those were of nulls."""

    def __init__(self) -> None:
        self.checked = self.nulls = 0

    def faults(self, column: str, entries: ValueEntries, rows: Mapping[str, Row]) -> Iterator[str]:
        """What differs between the living entries and the live rows, of which the column is indexed."""
        values = {key: row.value(column) for key, row in rows.items()}
        wanted = {f"{value_part(value)}{escaped(key)}" for key, value in values.items()}
        self.checked += len(wanted)
        self.nulls += list(values.values()).count(None)
        if missing := wanted - entries.found:
            yield f"the secondary index lacks {_some(missing)}: queries by the column lose these rows"
        if more := entries.found - wanted:
            yield f"the secondary index has {_some(more)}, which no row has"
        if entries.astray:
            yield f"the secondary index has {_some(entries.astray)} in groups where nobody looks for them"


def unfinished(properties: bytes, definitions: bytes) -> set[str]:
    """The indexes that somebody builds, or left half made: whatever is named as being built, and a secondary
    one that is defined and not listed.
    """
    listed, building = _named(properties)
    return building | ({each for each in _known(definitions) if each.startswith(_PREFIX)} - listed)


def is_listed(properties: bytes) -> bool:
    """Whether the table lists the index, and nobody builds it."""
    listed, building = _named(properties)
    return NAME in listed - building


def defined_column(definitions: bytes) -> str | None:
    """The column of the index; None where it is not defined."""
    definition = _known(definitions).get(NAME)
    return None if definition is None else str(definition["sourceFields"][0])


def _named(properties: bytes) -> tuple[set[str], set[str]]:
    """What the properties name as listed, and as being built."""
    values = dict(line.split("=", 1) for line in properties.decode("latin-1").splitlines() if "=" in line)
    listed, building = (
        set(filter(None, values.get(key, "").split(","))) for key in (_LISTED, f"{_LISTED}.inflight")
    )
    return listed, building


def _known(definitions: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(definitions)["indexDefinitions"] if definitions else {}
    return found


def _some(keys: Iterable[str]) -> str:
    found = sorted(keys)
    return f"{len(found)} entries: {', '.join(found[:_SHOWN])}"
