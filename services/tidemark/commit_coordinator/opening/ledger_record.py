"""How far the table's ledger is committed, kept with the table: `tidemark table adopt --new-ledger` goes on
from it when other writers' commits have pushed our last one out of the active timeline.

Written after each commit, behind the term's fence, and again at a start, so it is at most one epoch behind.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tidemark.epoch_protocol.state import Committed, FoldState
from tidemark.hudi_format.errors import CorruptFileError, FileMissingError
from tidemark.hudi_format.publication.port import Term
from tidemark.hudi_format.storage.base import Storage, join_path
from tidemark.hudi_format.storage.documents import ROOT, read_document

LEDGER_RECORD: Final = join_path(ROOT, "ledger.json")


class LedgerRecord(msgspec.Struct, frozen=True):
    """``committed``: as the fold has it. ``ledger``: the identity of the ledger that it is about."""

    ledger: str
    committed: Committed


class LedgerRecorder:
    """Keeps the record current; for one thread."""

    def __init__(self, term: Term) -> None:
        self._term = term
        self._written: Committed | None = None

    def keep(self, state: FoldState) -> None:
        """Writes what is committed, when that is news. Raises FencedOutError when the term is over,
        OSError.
        """
        if state.committed == self._written:
            return
        content = msgspec.json.encode(LedgerRecord(state.ledger, state.committed), order="sorted")
        self._term.replace(LEDGER_RECORD, content)
        self._written = state.committed


def read_ledger_record(storage: Storage) -> LedgerRecord | None:
    """None when there is none, or none that can be read: the timeline says the rest."""
    try:
        return read_document(storage, LEDGER_RECORD, LedgerRecord)
    except (FileMissingError, CorruptFileError):
        return None
