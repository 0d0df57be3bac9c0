"""How a world's table is laid out: what its record keys and partition paths are made of.

=============== ========================= ====================================
``partition``   columns                   path of a row of day ``d1``
=============== ========================= ====================================
``day``         `day`                     ``d1``
``none``        none: not partitioned     (empty)
``two``         `day`, `zone`             ``d1/z1``
=============== ========================= ====================================

Keys are written as Hudi does: the value itself where one column makes the key and at most one the partition,
``id:k1,sub:s`` or ``id:k1`` elsewhere. Rows of the model have their partition path as ``day``.

A row's *identity*, by which the model and the checkers go, is its record key. Where the record index is
divided by partition, it is the partition path, a bar and the record key: ``d1|k1``, ``d1/z1|id:k1``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

SUB: Final = "s"
_DAY_OF_NONE: Final = "d0"
_BAR: Final = "|"
NOTES: Final[Sequence[str | None]] = ("a", None, "a$b", "", "a", None, "\\", "x\x00", "\U0001d11e")
"""What indexed notes are: null in some rows, the same in several, and what an entry of an index has to escape
or to hash by other units than its letters.
"""


@dataclass(frozen=True)
class Layout:
    """``keys``: how many columns the record key has, 1 or 2. ``by_partition``: the record index is divided by
    partition. ``has_notes``: the column `note`, which may be null, is there from the start, and indexed.
    """

    partition: str = "day"
    keys: int = 1
    by_partition: bool = False
    has_notes: bool = False

    @property
    def _names_parts(self) -> bool:
        return self.keys > 1 or self.partition == "two"

    def record_key(self, name: str) -> str:
        """The record key of the row with this `id`."""
        if not self._names_parts:
            return name
        return f"id:{name},sub:{SUB}" if self.keys > 1 else f"id:{name}"

    def note(self, number: int, has_grown: bool) -> str | None:
        """Of the row with this number. ``has_grown``: the table has got the column."""
        if self.has_notes:
            return NOTES[number % len(NOTES)]
        return f"n{number}" if has_grown else None

    @property
    def deletes_name_partition(self) -> bool:
        """Whether a delete has to name the partition of its row."""
        return self.by_partition and self.partition != "none"

    def identity(self, path: str, record_key: str) -> str:
        """Of the row with this key in this partition."""
        return f"{path}{_BAR}{record_key}" if self.by_partition else record_key

    def key_of(self, identity: str) -> str:
        """The record key of a row."""
        return identity.partition(_BAR)[2] if self.by_partition else identity

    def path_of(self, identity: str) -> str:
        """The partition path of a row, where it is part of its identity."""
        return identity.partition(_BAR)[0]

    def name(self, identity: str) -> str:
        """The `id` of the row."""
        record_key = self.key_of(identity)
        return record_key.partition(",")[0].removeprefix("id:") if self._names_parts else record_key

    def path(self, day: str, zone: str | None = None) -> str:
        """The partition path of a row with these values; without a zone, of the one that the day has."""
        if self.partition == "none":
            return ""
        return f"{day}/{zone or zone_of(day)}" if self.partition == "two" else day

    def day(self, path: str) -> str:
        """A day whose rows have this path."""
        return path.partition("/")[0] or _DAY_OF_NONE


def zone_of(day: str) -> str:
    """The zone of all rows of a day."""
    return f"z{int(day[1:]) % 2}"
