"""G7: no service action is void without a cause of its own: what was done for it, the merges of a compaction
above all, was in vain. Where something that happens again and again voids actions, none ever ends well.

* A compaction is void for what happened between its plan and its end: another engine changed a file of the
  table, the lock was taken away, another coordinator claimed the table, or the broker was away.
* A clean, an archival and a rollback look at the table once more when they are decided, and may find no more
  to do. For them a plan of an epoch, and any other action's plan or end, is a cause, too.
* Where the storage refuses a call of a coordinator or a writer, what is open or planned until the next such
  process begins is not judged: which call is met is not known here.

A rewind is no cause: it moves no file. Example: an assigner asks for one while a compaction's merges run,
and the coordinator voids the compaction with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

_COMPACTIONS: Final = frozenset({"compact-data", "compact-index"})
_OF_THE_TABLE: Final = frozenset({"epoch_planned", "service_planned", "service_committed"})


class NeedlessServices:
    """``say(guarantee, text)`` is told of each violation."""

    def __init__(self, say: Callable[[str, str], None]) -> None:
        self._say = say
        self._term = -1
        self._kinds: dict[int, str] = {}
        self._excused: set[int] = set()
        self._is_down = False
        self._refused: set[str] = set()

    def _violated(self, text: str) -> None:
        self._say("G7", text)

    def caused(self) -> None:
        """Something happened for which actions may end that are open now."""
        self._excused.update(self._kinds)

    def broker(self, is_down: bool) -> None:
        """Nobody reaches the broker, or everybody does again."""
        self._is_down = is_down
        self.caused()

    def refused(self, kind: str) -> None:
        """The storage refuses a call of the process of this kind, now or later."""
        self._refused.add(kind)
        self.caused()

    def begins(self, kind: str) -> None:
        """A process of this kind was started, which is refused nothing."""
        self._refused.discard(kind)

    def decided(self, offset: int, entry: dict[str, Any]) -> None:
        """The next entry of the decisions, whether it counts or not."""
        kind = entry["type"]
        if kind == "coordinator_claimed":
            self._term = offset
            self.caused()
        elif entry["term"] != self._term:
            return
        number = entry.get("service", 0)
        if kind in _OF_THE_TABLE:
            self._excused.update(each for each, of in self._kinds.items() if of not in _COMPACTIONS)
        if kind == "service_planned":
            self._kinds[number] = entry["kind"]
            if self._is_down or self._refused:
                self._excused.add(number)
        elif kind in ("service_committed", "service_voided"):
            of = self._kinds.pop(number, None)
            has_cause = number in self._excused
            self._excused.discard(number)
            if kind == "service_voided" and of is not None and not has_cause:
                self._violated(f"service action {number} ({of}) is void without a cause: {entry['reason']}")
