"""A full disk, for tests, of real files and a real RocksDB: it refuses to write, and to close files."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any, BinaryIO, cast

from rocksdict import Rdict

from tidemark.index_assigner.runs.files import PART_SUFFIX, RunFolder, is_change


def created_on_full_disk(folder: RunFolder, name: str) -> BinaryIO:
    """Does what `RunFolder.create` does. What is written there is kept in memory, as of any file, until
    there are some KiB of it, or until it is flushed or closed; then the system says ENOSPC, each time.
    """
    part = folder.path / f"{name}{PART_SUFFIX}"
    part.symlink_to("/dev/full")
    return part.open("wb")


def copies(folder: Path) -> list[Path]:
    """The copies of base files of the assigner with this cache folder."""
    return [path for path in (folder / "runs").glob("*.run") if not is_change(path.name)]


class FullDisk:
    """Refuses what RocksDB writes as long as there are more than ``fit`` copies of base files.

    ``refused``: how often it did.
    """

    def __init__(self, folder: Path, fit: int = 0) -> None:
        self._folder, self._fit, self.refused = folder, fit, 0

    def check(self) -> None:
        """Raises what rocksdict raises."""
        if len(copies(self._folder)) > self._fit:
            self.refused += 1
            raise Exception("IO error: No space left on device: While appending to file: LOG")

    def refusing(self, database: Rdict, *writes: str) -> Rdict:
        """The database, with these methods refused."""
        return cast(Rdict, _Refusing(database, self, writes))


class _Refusing:
    def __init__(self, database: Rdict, disk: FullDisk, writes: Collection[str]) -> None:
        self._database, self._disk, self._writes = database, disk, writes

    def __getattr__(self, name: str) -> Any:
        if name in self._writes:
            self._disk.check()
        return getattr(self._database, name)
