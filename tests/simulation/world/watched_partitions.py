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
from tests.simulation.world.checkers.table import Reader
from tests.simulation.world.storage import WatchedStorage

_INDEX: Final = ".hoodie/metadata/record_index"
_LOCK: Final = ".hoodie/lock"


class WatchedPartitions:
    """Counts in ``reached``. ``is_theirs(instant)``: of a write of the other engine."""

    def __init__(
        self,
        judge: Judge,
        reader: Reader,
        storage: WatchedStorage,
        layout: Layout,
        is_theirs: Callable[[str], bool],
        reached: Counter[str],
    ) -> None:
        self._judge, self._reader, self._storage, self._layout = judge, reader, storage, layout
        self._is_theirs, self._reached = is_theirs, reached
        self._known: set[tuple[str, str]] = set()
        self._published: set[str] = set()
        self._lock_was_taken = False

    def lock_was_taken(self) -> None:
        """Somebody deleted the lock by hand: who held it does not know yet."""
        self._lock_was_taken = True

    def stored(self, path: str) -> None:
        """We changed something at the path: nothing hides while the lock is free, not even for a moment. Who
        makes the lock anew knows that it was gone.
        """
        if not self._layout.by_partition or not path.startswith((_LOCK, _INDEX)):
            return
        if not self._storage.exists(_LOCK):
            self._nothing_hides()
        elif self._lock_was_taken:
            self._lock_was_taken = False
            self._reached["lock made anew after it was taken away"] += 1

    def _nothing_hides(self) -> None:
        """G5, unless the lock is free because somebody deleted it. What the other engine leaves when it dies
        may hide, until somebody rolls it back.
        """
        hidden = set() if self._lock_was_taken else self._hidden()
        if hidden:
            first: dict[str, str] = {}
            for file in self._reader.files(_INDEX):
                first[file.file_id] = min(first.get(file.file_id, file.instant), file.instant)
            self._say({file_id for file_id in hidden if not self._is_theirs(first[file_id])})

    def _hidden(self) -> set[str]:
        return self._reader.hidden(self._reader.data_timeline(), self._reader.metadata_timeline())

    def _say(self, hidden: set[str]) -> None:
        if hidden:
            self._judge.say("G5", f"readers see nothing of {sorted(hidden)}, and Hudi cannot write there")

    def happened(self) -> None:
        """After an event."""
        if not self._layout.by_partition or self._judge.violations:
            return
        look = self._judge.look()
        hidden = look.reader.hidden(look.timeline, look.metadata)
        if not self._storage.exists(_LOCK):
            self._nothing_hides()
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
        if self._layout.by_partition:
            self._say(self._hidden())
