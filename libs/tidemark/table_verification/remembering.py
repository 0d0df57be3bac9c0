"""Verifies a table from the state of the previous run, and stores the state for the next run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tidemark.hudi_format.errors import FileMissingError, HudiFormatError
from tidemark.hudi_format.metadata_table.checked_index import CHECKED_INDEX, keep_checked
from tidemark.hudi_format.replaced_rows import ReplacedRows
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.timeline import load_timeline
from tidemark.table_verification.findings import Kind
from tidemark.table_verification.verified_state import STATE_PATH, load_state, store_state
from tidemark.table_verification.verify import Verification, verify_table

_HARMLESS: Final = frozenset(
    {Kind.ENTRY_WITHOUT_ROW, Kind.ORPHAN_FILE, Kind.COLUMN_STATS_MISSING, Kind.COLUMN_STATS_WRONG}
)
"""Differences despite which each row still has its entry."""


def verify_and_remember(
    storage: Storage, full: bool, say: Callable[[str], None], wait: Callable[[float], None]
) -> Verification:
    """Verifies the table, and stores the state if there are no differences.

    ``full``: ignores the previous run's state. If each row has its index entry, that is stored as well, for
    the coordinator (`checked_index`). A failure to store (a read-only table) is no error: it is passed to
    ``say``. ``wait``, and what it raises: as `verify_table`.
    """
    state = None if full else load_state(storage)
    if state is None and not full and storage.exists(STATE_PATH):
        say(f"{STATE_PATH} is damaged or of another release: reading everything")
    replaced = _taking_rows(storage)
    result = verify_table(storage, say, state, wait)
    if result.state is not None:
        try:
            store_state(storage, result.state)
        except (OSError, HudiFormatError) as error:
            say(f"the next run has to read everything again, {STATE_PATH} cannot be written: {error}")
    there = _taking_rows(storage)
    if result.findings.counts.keys() <= _HARMLESS and replaced <= there:
        try:
            keep_checked(storage, replaced, there)
        except (OSError, HudiFormatError) as error:
            say(f"that each row is in the record index cannot be kept in {CHECKED_INDEX}: {error}")
    return result


def _taking_rows(storage: Storage) -> frozenset[str]:
    """The replacecommits that replaced rows, as of now.

    Empty when they cannot be read (archived meanwhile, or damaged). Then nothing is stored about them, and
    the next verification checks them again.
    """
    try:
        return ReplacedRows(storage).taking_rows(load_timeline(storage))
    except (FileMissingError, HudiFormatError):
        return frozenset()
