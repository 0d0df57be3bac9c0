"""Rows that the engine writes: versions of its own, above all that the input had."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from tests.simulation.world.checkers.judge import Look
from tests.simulation.world.checkers.layout import Layout
from tests.simulation.world.checkers.model import Row
from tests.simulation.world.foreign.bench import Changes
from tests.simulation.world.foreign.writes import LeftOutError

KEYS: Final = 6
"""Our input has the keys k0 to k5; what the engine inserts in flight has keys of its own, f0, f1 …"""


class Rows:
    """``at()`` gives an ordering value above all that the input had so far, ``has_note()`` whether the table
    has the column that came later. ``made``: how many rows there were.
    """

    def __init__(self, layout: Layout, at: Callable[[], int], has_note: Callable[[], bool]) -> None:
        self._layout, self._at, self._has_note = layout, at, has_note
        self.made = self._fresh = self._inserted = 0

    def row(self, look: Look, key: str, day: str) -> Row:
        """A new version of the key, above all that the input had, and above the one that is there."""
        self.made += 1
        there = look.content.rows.get(key)
        at = max(self._at(), there.at if there is not None else 0)
        note = self._layout.note(self.made, self._has_note())
        return Row(day, at, -self.made, note)

    def meant(self, look: Look, key: str) -> str:
        """The row of a script's word: `f` is the last of the keys f1, f2 … that is there. With a partitioned
        record index a key may have several rows; it is one of them.
        """
        rows, layout = look.content.rows, self._layout
        if key == "f":
            return max((each for each in rows if layout.name(each).startswith("f")), default=key)
        if key in rows or not layout.by_partition:
            return key
        found = sorted(each for each in rows if layout.key_of(each) == key)
        return found[self.made % len(found)] if found else key

    def known(self, look: Look, key: str) -> Row:
        """The row that a word means. Raises LeftOutError: there is none."""
        key = self.meant(look, key)
        if key not in look.content.rows:
            raise LeftOutError(f"there is no {key}")
        return look.content.rows[key]

    def _absent(self, there: Collection[str], day: str) -> str:
        keys = [self._layout.identity(day, self._layout.record_key(f"k{n}")) for n in range(KEYS)]
        absent = [key for key in keys if key not in there]
        if not absent:
            raise LeftOutError("every key is there")
        return absent[self._inserted % len(absent)]

    def changes(self, look: Look, what: str, *words: str) -> Changes:
        """What becomes of which key, by the words of a script."""
        if what == "empty":
            return {}
        if what == "insert":
            self._inserted += 1
            # Where the index names a file group that was replaced Hudi would write where nobody reads.
            key = self._absent(look.content.indexed, words[0])
            return {key: self.row(look, key, *words)}
        if what == "fresh":
            self._fresh += 1
            key = self._layout.identity(words[0], self._layout.record_key(f"f{self._fresh}"))
            return {key: self.row(look, key, *words)}
        key, *rest = words
        key, row = self.meant(look, key), self.known(look, key)
        if what == "delete":
            return {key: None}
        day = rest[0] if what == "move" else row.day
        if self._layout.by_partition:
            # There nothing moves: it writes the key in the other partition, too.
            key = self._layout.identity(day, self._layout.key_of(key))
        return {key: self.row(look, key, day)}

    def adds_ours(self, look: Look, changes: Changes) -> bool:
        """Whether they insert a row of a key that our input has. Where the record index is partitioned a move
        does.
        """
        new = (key for key, row in changes.items() if row is not None and key not in look.content.rows)
        return any(not self._layout.name(each).startswith("f") for each in new)

    def overwritten(self, look: Look, day: str) -> dict[str, Row]:
        """One row that was in the partition, or an absent one, of which nobody asks the index."""
        there = sorted(key for key, row in look.content.rows.items() if row.day == day)
        key = there[self.made % len(there)] if there else self._absent(look.content.rows, day)
        return {key: self.row(look, key, day)}
