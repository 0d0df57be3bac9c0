"""What becomes of the index entries that the other engine leaves behind, as the table shows it."""

from __future__ import annotations

from collections import Counter

from tests.simulation.world.checkers.judge import Judge
from tests.simulation.world.checkers.left_entries import left_entries
from tests.simulation.world.checkers.timelines import Place


class WatchedEntries:
    """Counts in ``reached``. The other engine's rows have numbers below zero."""

    def __init__(self, judge: Judge, reached: Counter[str]) -> None:
        self._judge, self._reached = judge, reached
        self._left: dict[str, Place] = {}
        self._archived = set[tuple[str, Place]]()
        self._again = set[str]()

    def happened(self) -> None:
        """After an event."""
        if self._judge.violations:
            return
        look = self._judge.look()
        rows, left = look.content.rows, left_entries(look.content, look.timeline)
        if not (left or self._left or self._again):
            return
        self._reached["index entry left behind"] += len(left.items() - self._left.items())
        again = {key for key in self._left.keys() - left.keys() if key in rows and rows[key].number >= 0}
        self._reached["our insert over an index entry left behind"] += len(again)
        deleted = {key for key in self._again - rows.keys() if key not in look.content.indexed}
        self._reached["delete of a key whose index entry was left behind"] += len(deleted)
        archived = {each for each in left.items() if each[1] not in look.timeline.replaced}
        self._reached["index entry left behind, replacecommit archived"] += len(archived - self._archived)
        self._again = (self._again | again) - deleted - left.keys()
        self._left, self._archived = left, self._archived | archived
