"""Service actions as the decisions have them: which are open, how they ended, and what must never happen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from tests.simulation.world.checkers.table import DataFile

Entry = dict[str, Any]
_KINDS: Final = (
    "service_planned",
    "service_decided",
    "service_committed",
    "service_voided",
)


class ServiceActions:
    """``open``: number -> its plan; ``decided``: numbers of those that are decided. ``ends``: kind and end of
    each action that ended, with how many there were.
    """

    def __init__(self, entries: Iterable[tuple[int, Entry]]) -> None:
        self.open: dict[int, Entry] = {}
        self.decided: set[int] = set()
        self.ends: Counter[str] = Counter()
        term = -1
        for offset, entry in entries:
            if entry["type"] == "coordinator_claimed":
                term = offset
            elif entry["type"] in _KINDS and entry["term"] == term:
                self._take(entry)

    def _take(self, entry: Entry) -> None:
        number = entry["service"]
        if entry["type"] == "service_planned":
            if all(each["kind"] != entry["kind"] for each in self.open.values()):
                self.open[number] = entry
        elif number in self.open and entry["type"] == "service_decided":
            self.decided.add(number)
        elif number in self.open:
            kind = self.open.pop(number)["kind"]
            how = entry.get("outcome", "void" if number not in self.decided else "taken back")
            self.decided.discard(number)
            self.ends[f"{kind} {how}"] += 1

    def instants(self) -> set[str]:
        """Those of the actions that are decided and have not ended."""
        return {self.open[number]["instant"] for number in self.decided}


def is_doubled(file: DataFile, listed: Mapping[str, set[str]], open_ones: Collection[str]) -> bool:
    """Whether it is a base file of an open action of Tidemark's that nobody lists: another engine carried the
    plan out and made one of its own. Ours goes with the sweep.
    """
    folder, _, name = file.path.rpartition("/")
    return not file.is_log and file.instant in open_ones and name not in listed.get(folder, ())
