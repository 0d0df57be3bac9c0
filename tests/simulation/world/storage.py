"""The table's folder: the contract-tested in-memory storage, with deletions that a machine's crash takes
back, and with a watcher that is told of every change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from hudi_format.storage.faulty import FaultyStorage
from hudi_format.storage.memory import InMemoryStorage
from stream_runtime.clock import Clock

_CHANGED_PATHS: Final = {
    "create": (0,), "replace": (0,), "publish": (1,), "rename": (0, 1), "delete": (0,), "delete_tree": (0,),
}  # fmt: skip


class WatchedStorage:
    """`changed(path)` is called after each call that changed something there."""

    def __init__(self, clock: Clock) -> None:
        self.memory = InMemoryStorage("/table", clock)
        self.faulty = FaultyStorage(self.memory)
        self.changed: Callable[[str], None] = lambda path: None
        self.base_uri = self.memory.base_uri
        for name, places in _CHANGED_PATHS.items():
            setattr(self, name, self._told(getattr(self.faulty, name), places))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.faulty, name)

    def _told(self, call: Callable[..., Any], places: tuple[int, ...]) -> Callable[..., Any]:
        def told(*args: Any, **kwargs: Any) -> Any:
            result = call(*args, **kwargs)
            for place in places:
                self.changed(args[place])
            return result

        return told

    def crash(self) -> list[str]:
        """The machine loses power: deletions that were not synced come back; returns the files."""
        back = self.faulty.crash()
        for path in back:
            self.changed(path)
        return back

    def names(self, folder: str) -> list[str]:
        """Names of the files in a folder."""
        prefix = f"{folder}/" if folder else ""
        start = len(prefix)
        found = (path[start:] for path in self.memory._files if path.startswith(prefix))
        return [name for name in found if "/" not in name]

    def folders(self) -> list[str]:
        """Folders of table partitions, those with data files."""
        paths = (path for path in self.memory._files if not path.startswith(".hoodie"))
        return sorted({path.rpartition("/")[0] for path in paths})

    def paths(self) -> list[str]:
        """All files."""
        return sorted(self.memory._files)
