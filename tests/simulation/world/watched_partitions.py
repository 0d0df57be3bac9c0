"""What became of the partitions of a partitioned record index: who began them, and whether a group hides from
readers while anybody may take the table's lock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from tests.simulation.world.checkers.judge import Judge
from tests.simulation.world.checkers.layout import Layout
from tests.simulation.world.checkers.partitioned import index_group
from tests.simulation.world.storage import WatchedStorage

_INDEX: Final = ".hoodie/metadata/record_index"
_LOCK: Final = ".hoodie/lock"


class WatchedPartitions:
    """Counts in ``reached``. ``is_theirs(instant)``: of a commit of the other engine."""

    def __init__(
        self,
        judge: Judge,
        storage: WatchedStorage,
        layout: Layout,
        is_theirs: Callable[[str], bool],
        reached: Counter[str],
    ) -> None:
        self._judge, self._storage, self._layout = judge, storage, layout
        self._is_theirs, self._reached = is_theirs, reached
        self._known: set[tuple[str, str]] = set()
        self._published: set[str] = set()
        self._lock_was_taken = False

    def lock_was_taken(self) -> None:
        """Somebody deleted the lock by hand: who held it does not know yet."""
        self._lock_was_taken = True

    def happened(self) -> None:
        """After an event."""
        if not self._layout.by_partition or self._judge.violations:
            return
        look = self._judge.look()
        hidden = look.reader.hidden(look.timeline, look.metadata)
        if hidden and not self._lock_was_taken and not self._storage.exists(_LOCK):
            self.at_rest()
        self._reached["groups that were published and taken back"] += len(
            self._published - hidden - {file_id for (_, file_id), _ in look.view.shards}
        )
        self._published = hidden
        first: dict[str, str] = {}
        for file in look.reader.files(_INDEX):
            group = index_group(file.file_id)
            if group is not None and file.file_id not in hidden:
                first[group.path] = min(first.get(group.path, file.instant), file.instant)
        for path, instant in first.items() - self._known:
            if path not in {known for known, _ in self._known}:
                whose = "another engine" if self._is_theirs(instant) else "us"
                self._reached[f"partition begun by {whose}"] += 1
        self._known |= set(first.items())
        keys = Counter(map(self._layout.key_of, look.content.rows))
        self._reached["key in several partitions"] += max(keys.values(), default=0) > 1

    def at_rest(self) -> None:
        """G5: no group hides."""
        if not self._layout.by_partition:
            return
        look = self._judge.look()
        if hidden := look.reader.hidden(look.timeline, look.metadata):
            self._judge.say("G5", f"readers see nothing of {sorted(hidden)}, and Hudi cannot write there")
