"""A full disk, for tests: real file objects, whose writes and whose closing it refuses."""

from __future__ import annotations

from typing import BinaryIO

from tidemark.index_assigner.runs.files import PART_SUFFIX, RunFolder


def created_on_full_disk(folder: RunFolder, name: str) -> BinaryIO:
    """Does what `RunFolder.create` does. What is written there is kept in memory, as of any file, until
    there are some KiB of it, or until it is flushed or closed; then the system says ENOSPC, each time.
    """
    part = folder.path / f"{name}{PART_SUFFIX}"
    part.symlink_to("/dev/full")
    return part.open("wb")
