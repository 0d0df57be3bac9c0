"""A coordinator's term for tests of what needs one: over folders, with a clock and ids of its own."""

from __future__ import annotations

from testing.clock import ManualClock
from testing.ids import SeededIds
from tidemark.hudi_format.publication.posix import PosixPublication, PosixTerm
from tidemark.hudi_format.publication.tickets import TermId
from tidemark.hudi_format.storage.base import FolderStorage


def publication_of(storage: FolderStorage, clock: ManualClock | None = None) -> PosixPublication:
    """How files are published there."""
    return PosixPublication(storage, clock or ManualClock(), SeededIds(1))


def begin_term(storage: FolderStorage, number: int = 1, clock: ManualClock | None = None) -> PosixTerm:
    """Ends all older terms and begins this one."""
    return publication_of(storage, clock).open_term(TermId(number))
