"""The identity of a table's ledger, as the table's folder holds it.

It is a UUID that is made with the table; `tidemark table adopt --new-ledger` makes another one. Coordinator,
assigners and writers compare it with the identity in the topics and with each other's, because topics and
tables of the same name need not belong together.
"""

from __future__ import annotations

from typing import Final

from tidemark.hudi_format.errors import FileMissingError
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.storage.documents import read_text

TABLE_ID: Final = ".hoodie/.aux/tidemark/table-id"


def known_ledger_id(storage: Storage) -> str:
    """The identity in the table's folder; "" when there is none."""
    try:
        return read_text(storage, TABLE_ID).strip()
    except FileMissingError:
        return ""
