"""Errors of run files. None of them changes an answer: the HFile is asked instead."""

from __future__ import annotations


class RunDamagedError(Exception):
    """A run file does not hold what was written."""


class RunRefusedError(OSError):
    """The system has no descriptor, memory or mapping left for a run file: the file is as it was."""


class RunTooLargeError(Exception):
    """A run would take more of the disk than there is room for.

    ``entry_bytes``: what an entry takes by what was written so far, and a fifth more.
    """

    def __init__(self, name: str, size: int, entries: int) -> None:
        super().__init__(f"{name} takes more than {size} bytes, with {entries} entries in them")
        self.entry_bytes = 1.2 * size / max(entries, 1)
