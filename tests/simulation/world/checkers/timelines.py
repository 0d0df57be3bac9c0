"""Both timelines of the table as the checkers work with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from tests.hudi_rules.documents import decode
from tests.hudi_rules.slices import clustered, replaced, replaced_for_good, scheduled
from tests.hudi_rules.table import HudiTable
from tests.hudi_rules.timeline import Timeline as HudiTimeline
from tests.hudi_rules.timeline import parse_name, parse_timeline

DATA_TIMELINE: Final = ".hoodie/timeline"
METADATA_TIMELINE: Final = ".hoodie/metadata/.hoodie/timeline"
_WRITES: Final = frozenset({"commit", "deltacommit", "replacecommit", "compaction", "clustering"})
Place = tuple[str, str]
"""(partition path, file id)"""


@dataclass(frozen=True)
class Timeline:
    """``completed``: requested -> completion time of writes; ``pending``: of everything; ``others``:
    completed rollbacks and the like; ``compactions``: their requested times. ``replaced``, ``scheduled``,
    ``clustered``: file groups that a replacecommit took away, or that a compaction or a clustering is
    scheduled for, with its instant. ``without_rows``: file groups that were replaced and whose rows nobody
    moved, by an archived replacecommit, too.
    """

    completed: dict[str, str]
    pending: frozenset[str]
    others: dict[str, str]
    compactions: frozenset[str] = frozenset()
    hudi: HudiTimeline = field(default_factory=lambda: HudiTimeline({}))
    replaced: Mapping[Place, str] = field(default_factory=dict)
    scheduled: Mapping[Place, str] = field(default_factory=dict)
    clustered: Mapping[Place, str] = field(default_factory=dict)
    without_rows: frozenset[Place] = frozenset()

    @cached_property
    def first(self) -> str | None:
        """The first write instant in whatever state."""
        return min([*self.completed, *self.pending], default=None)

    def counts(self, instant: str) -> bool:
        """Whether files of the instant are committed."""
        if instant in self.completed:
            return True
        first = self.first
        return instant not in self.pending and first is not None and instant < first


NO_TIMELINE: Final = Timeline({}, frozenset(), {})


def read_timeline(
    folder: str, names: Iterable[str], read: Callable[[str], bytes], history: HudiTable | None
) -> Timeline:
    """From the names in a timeline folder, and from what plans and replacecommits say. ``history``: of what
    is archived.
    """
    names = list(names)
    completed: dict[str, str] = {}
    others: dict[str, str] = {}
    started: set[str] = set()
    for name in names:
        parts = parse_name(name)
        if parts is None:
            continue
        requested, completion, word, _ = parts
        if word == "savepoint":
            # It changes nothing, and may be deleted: its times bind nobody once they are gone.
            continue
        if completion is not None:
            (completed if word in _WRITES else others)[requested] = completion
        elif word in _WRITES:
            started.add(requested)
    hudi = parse_timeline(names, history.archived if history is not None else {})

    def plans(action: str) -> dict[str, dict[str, object]]:
        return {
            each.requested: decode(read(f"{folder}/{each.requested}.{action}.requested"))
            for each in hudi.pending(action)
        }

    replaces = hudi.completed("replacecommit", "clustering")
    documents = {each.requested: decode(read(f"{folder}/{each.name}")) for each in replaces}
    without_rows = replaced_for_good(documents.values())
    if history is not None:
        without_rows |= history.replaced_in_history
    return Timeline(
        completed,
        frozenset(started - completed.keys()),
        others,
        frozenset(each.requested for each in hudi.instants.values() if each.action == "compaction"),
        hudi,
        replaced(documents),
        scheduled(plans("compaction")),
        clustered(plans("clustering")),
        without_rows,
    )
