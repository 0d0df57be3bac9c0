"""The secondary index of the column `ts`: after every commit its living entries are exactly the live rows'.

Keys are written here from Hudi's rule and not by the product: the value's text, a dollar, the record key,
with a backslash before backslashes and dollars in both.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from tests.simulation.world.checkers.model import Row

PROPERTIES: Final = ".hoodie/hoodie.properties"
DEFINITIONS: Final = ".hoodie/.index_defs/index.json"
_PREFIX: Final = "secondary_index_"
_LISTED: Final = "hoodie.table.metadata.partitions"
_SHOWN: Final = 5


class SecondaryIndex:
    """``checked``: how many entries were compared with rows."""

    def __init__(self) -> None:
        self.checked = 0

    def faults(self, entries: set[str], rows: Mapping[str, Row]) -> Iterator[str]:
        """What differs between the living entries and the live rows."""
        wanted = {f"{_escaped(str(row.at))}${_escaped(key)}" for key, row in rows.items()}
        self.checked += len(wanted)
        if missing := wanted - entries:
            yield f"the secondary index lacks {_some(missing)}: queries by the column lose these rows"
        if more := entries - wanted:
            yield f"the secondary index has {_some(more)}, which no row has"


def unfinished(properties: bytes, definitions: bytes) -> set[str]:
    """The indexes that somebody builds, or left half made: whatever is named as being built, and a secondary
    one that is defined and not listed.
    """
    values = dict(line.split("=", 1) for line in properties.decode("latin-1").splitlines() if "=" in line)
    listed, building = (
        set(filter(None, values.get(key, "").split(","))) for key in (_LISTED, f"{_LISTED}.inflight")
    )
    known = json.loads(definitions)["indexDefinitions"] if definitions else {}
    return building | ({each for each in known if each.startswith(_PREFIX)} - listed)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("$", "\\$")


def _some(keys: Iterable[str]) -> str:
    found = sorted(keys)
    return f"{len(found)} entries: {', '.join(found[:_SHOWN])}"
