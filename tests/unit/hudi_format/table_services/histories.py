"""Random histories of a table's file groups, and what is true of them: told from the history, not from files.

A history is a list of writes and compactions with requested and completion times. A compaction merges what
completed before it was requested, whenever it completes itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

from tidemark.hudi_format.table_view import TableView
from tidemark.hudi_format.timeline import Action, Instant, State, Timeline

Group = tuple[str, str]
GROUPS: tuple[Group, ...] = (("p", "a-0"), ("p", "b-0"), ("q", "c-0"))


def t(n: int) -> str:
    return f"20260101{n // 3_600_000:02d}{n // 60_000 % 60:02d}{n // 1000 % 60:02d}{n % 1000:03d}"


@dataclass(frozen=True)
class Event:
    """``groups``: those that it wrote. A write makes log files, or the first base file of a group."""

    requested: str
    completion: str
    groups: tuple[Group, ...]
    is_base: bool = False

    def name(self, group: Group) -> str:
        if self.is_base:
            return f"{group[1]}_0-0-0_{self.requested}.parquet"
        return f".{group[1]}_{self.requested}.log.1_0-0-0"


@dataclass
class History:
    events: list[Event] = field(default_factory=list)
    end: int = 0

    def files(self) -> dict[str, dict[str, int]]:
        found: dict[str, dict[str, int]] = {"p": {}, "q": {}}
        for event in self.events:
            for group in event.groups:
                found[group[0]][event.name(group)] = 100 if event.is_base else 10
        return found

    def timeline(self) -> Timeline:
        instants = [
            Instant(
                each.requested,
                Action.COMPACTION if each.is_base and number else Action.DELTA_COMMIT,
                State.COMPLETED,
                each.completion,
            )
            for number, each in enumerate(self.events)
        ]
        return Timeline(tuple(sorted(instants)))

    def view(self, replaced: Mapping[Group, str] | None = None) -> TableView:
        return TableView(self.timeline(), replaced or {}, {}, {}, {})

    def read_at(self, group: Group, moment: str) -> set[str]:
        """The names of the files that a reader who lists at this moment merges: the newest base file that is
        there, and the logs that completed since its compaction was requested.
        """
        known = [each for each in self.events if group in each.groups and each.completion <= moment]
        bases = [each for each in known if each.is_base]
        if not bases:
            return set()
        newest = max(bases, key=lambda each: each.requested)
        logs = [each for each in known if not each.is_base and each.completion >= newest.requested]
        return {newest.name(group), *(each.name(group) for each in logs)}


def random_history(seed: int, steps: int = 25) -> History:
    """Writes overlap, compactions complete late, and a group has one compaction at a time."""
    dice = Random(seed)
    history = History([Event(t(1), t(2), GROUPS, is_base=True)])
    now = 10
    busy_until: dict[Group, int] = {}
    for _ in range(steps):
        now += dice.randint(1, 8) * 2
        groups = tuple(each for each in GROUPS if dice.random() < 0.6)
        if dice.random() < 0.3:
            free = tuple(each for each in groups if busy_until.get(each, 0) < now)
            if free:
                late = dice.choice((3, 21, 63))
                history.events.append(Event(t(now), t(now + late), free, is_base=True))
                busy_until.update(dict.fromkeys(free, now + late))
        elif groups:
            began = max(now - dice.choice((1, 15, 45)), 4)
            while any(each.requested == t(began) for each in history.events):
                began += 1
            history.events.append(Event(t(began), t(max(now, began) + 1), groups))
    history.end = now + 100
    return history
