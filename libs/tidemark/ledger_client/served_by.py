"""Which table a coordinator serves, as it answers (`Serves`) and as it left its name in the table's folder.

The coordinator writes both; the command line compares them before every command.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tidemark.epoch_protocol.entries import TableLocation
from tidemark.hudi_format.errors import FileMissingError
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.storage.documents import ROOT, read_text

SERVED_BY: Final = f"{ROOT}/served-by"


@dataclass(frozen=True)
class Served:
    """``path``: of the table, as the coordinator sees it. ``owner``: the name that it left with the table, ""
    before it has taken over. ``location``: where the table lies; None before.
    """

    path: str
    owner: str = ""
    location: TableLocation | None = None


def shown_owner(storage: Storage) -> str | None:
    """The name that the table's coordinator left; None when none did. Raises CorruptFileError."""
    try:
        return read_text(storage, SERVED_BY)
    except FileMissingError:
        return None


def moved_or_copied_text(table: str, there: str, here: str) -> str:
    """The question, and a command for each answer."""
    return (
        f"the topics {table}.* are the ledger of the table at {there}, and table.path is {here}: was the "
        "table moved or copied? Moved: `tidemark table adopt --moved` goes on here. Copied: give the copy "
        "a table.name and a state.path of its own, then `tidemark table adopt --copied` begins a ledger "
        f"for it and leaves the table at {there} alone"
    )
