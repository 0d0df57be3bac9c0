"""A verification that goes on from the one before, and leaves its state for the next."""

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

_HARMLESS: Final = frozenset({Kind.ENTRY_WITHOUT_ROW, Kind.ORPHAN_FILE})
"""They do not put in doubt that each row has its entry."""


def verify_and_remember(storage: Storage, full: bool, say: Callable[[str], None]) -> Verification:
    """`full`: the state of the run before is left aside. Errors as `verify_table`.

    Where each row has its entry that is kept, too, for those who tag by the index (`checked_index`). What
    cannot be stored (a table that may only be read) is said and no error.
    """
    state = None if full else load_state(storage)
    if state is None and not full and storage.exists(STATE_PATH):
        say(f"{STATE_PATH} is damaged or of another release: reading everything")
    replaced = _taking_rows(storage)
    result = verify_table(storage, say, state)
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
    """Replacecommits that are there now. None where they cannot be read, as they are archived meanwhile or
    damaged: what is not kept is asked for again.
    """
    try:
        return ReplacedRows(storage).taking_rows(load_timeline(storage))
    except (FileMissingError, HudiFormatError):
        return frozenset()
