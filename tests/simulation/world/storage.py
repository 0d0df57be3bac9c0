"""The table's folder: the contract-tested in-memory storage, with deletions that a machine's crash takes
back, and with a watcher that is told of every change. Or a store of objects, which has no folders, and
forgets nothing that it answered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, cast

from testing.faulty_storage import FaultyStorage
from testing.memory_storage import InMemoryStorage
from testing.objects.store import ObjectStore
from tidemark.hudi_format.storage.base import join_path, parent_of
from tidemark.stream_runtime.clock import Clock

_CHANGED_PATHS: Final = {
    "create": (0,), "replace": (0,), "publish": (1,), "link": (1,), "rename": (0, 1), "rename_over": (0, 1),
    "delete": (0,),
    "delete_tree": (0,), "touch": (0,),
}  # fmt: skip
_CHANGED_OBJECTS: Final = {
    "create": (0,), "replace": (0,), "publish": (0,), "delete": (0,), "delete_tree": (0,), "touch": (0,),
}  # fmt: skip
_NO_DATA: Final = ".hoodie"
_TREES: Final = frozenset({"rename", "rename_over", "delete_tree"})


class WatchedStorage:
    """`changed(path)` is called after each call that changed something there."""

    def __init__(self, clock: Clock, has_folders: bool = True) -> None:
        self.memory: InMemoryStorage | ObjectStore
        self.called: FaultyStorage | ObjectStore
        if has_folders:
            self.memory = InMemoryStorage("/table", clock)
            self.called = FaultyStorage(self.memory)
        else:
            self.memory = self.called = ObjectStore("/table", clock)
        self.changed: Callable[[str], None] = lambda path: None
        self.base_uri = self.memory.base_uri
        self._names: dict[str, list[str]] = {}
        self._folders: list[str] | None = None
        for name, places in (_CHANGED_PATHS if has_folders else _CHANGED_OBJECTS).items():
            setattr(self, name, self._told(name, getattr(self.called, name), places))

    def link_all(self, links: Sequence[tuple[str, str]]) -> list[str]:
        """Each link is told of."""
        one = self._told("link_all", lambda _, link: cast(FaultyStorage, self.called).link_all([link]), (0,))
        return [taken for link in links for taken in one(link[1], link)]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.called, name)

    def _told(self, name: str, call: Callable[..., Any], places: tuple[int, ...]) -> Callable[..., Any]:
        def told(*args: Any, **kwargs: Any) -> Any:
            try:
                result = call(*args, **kwargs)
            finally:
                if name in _TREES:
                    self._names.clear()
                    self._folders = None
                for place in places:
                    self._names.pop(parent_of(args[place]), None)
                    if not args[place].startswith(_NO_DATA):
                        self._folders = None
            for place in places:
                self.changed(args[place])
            return result

        return told

    def crash(self) -> list[str]:
        """The machine loses power: deletions that were not synced come back; returns the files."""
        back = self.called.crash() if isinstance(self.called, FaultyStorage) else []
        self._names.clear()
        self._folders = None
        for path in back:
            self.changed(path)
        return back

    def file_names(self, folder: str) -> list[str]:
        """For who watches and for the other engine: names of the files in a folder, in their order. Not to be
        changed: the same list until something is written. (`Storage.names`, which the product calls, has
        folders, too.)
        """
        names = self._names.get(folder)
        if names is None:
            # Without what `list` finds out of each file, which nobody here asks for.
            files = self.memory._files
            names = sorted(name for name in self.memory.names(folder) if join_path(folder, name) in files)
            self._names[folder] = names
        return names

    def folders(self) -> list[str]:
        """Folders of table partitions, those with data files. Not to be changed, like `file_names`."""
        if self._folders is None:
            paths = (path for path in self.memory._files if not path.startswith(_NO_DATA))
            self._folders = sorted({path.rpartition("/")[0] for path in paths})
        return self._folders

    def paths(self) -> list[str]:
        """All files."""
        return sorted(self.memory._files)
