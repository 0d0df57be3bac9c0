"""Records in the table's folder how far its ledger is committed.

`tidemark table adopt --new-ledger` continues from that record if our last commit is not on the active
timeline any more, because other writers made many since. The record is written after each commit, in the
term, and at each start. So it is at most one epoch behind.
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
    """The stored document. ``committed``: as in the fold of the ledger whose identity is ``ledger``."""

    ledger: str
    committed: Committed


class LedgerRecorder:
    """Writes the record whenever more is committed; for one thread."""

    def __init__(self, term: Term) -> None:
        self._term = term
        self._written: Committed | None = None

    def keep(self, state: FoldState) -> None:
        """Writes the record if it has changed. Raises FencedOutError when the term is over, OSError."""
        if state.committed == self._written:
            return
        content = msgspec.json.encode(LedgerRecord(state.ledger, state.committed), order="sorted")
        self._term.replace(LEDGER_RECORD, content)
        self._written = state.committed


def read_ledger_record(storage: Storage) -> LedgerRecord | None:
    """The record; None if there is none or it cannot be read. Then the timeline alone has to do."""
    try:
        return read_document(storage, LEDGER_RECORD, LedgerRecord)
    except (FileMissingError, CorruptFileError):
        return None
