"""Which table and which ledger a folder belongs to, and who serves it: an identity, a name, a place.

* The *identity* of the ledger is a UUID that is made with the table (`table-id`); `tidemark table adopt
  --new-ledger` makes another one. Coordinator, assigners and writers compare it with the identity in the
  topics and with each other's, because topics and tables of the same name need not belong together.
* The *name* of the coordinator that serves the table (`served-by`), as it also answers it (`Serves`). The
  command line compares both before every command.
* The *place* tells whether the folder that a process was given is a copy of the served one (`is_copy`). A
  copied folder holds the same identity and names the same coordinator. Only the place differs: the folder's
  real path, and device and inode of its `table-id`, a file that nobody replaces. A coordinator of an earlier
  version tells those of `hoodie.properties` instead; Hudi replaces that file, and from then on nothing can be
  concluded until the coordinator states its place anew.

A place is what the coordinator's machine or container sees. Another machine may see the same folder under
another path (a mount), on another device (each machine numbers devices itself, also for one NFS export), and,
through a few file systems, with other inodes. So two places that differ prove nothing by themselves.

A proof looks like this: the coordinator states /data/orders and file 2049:131. On this machine, too,
/data/orders has a `table-id` with inode 131, while table.path is /copy/orders with inode 977. This machine
sees both tables, so table.path is another one.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

from tidemark.epoch_protocol.entries import TableLocation
from tidemark.hudi_format.errors import FileMissingError
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.storage.documents import ROOT, read_text
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.table_config import PROPERTIES_PATH

TABLE_ID: Final = f"{ROOT}/table-id"
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


def known_ledger_id(storage: Storage) -> str:
    """The identity in the table's folder; "" when there is none."""
    try:
        return read_text(storage, TABLE_ID).strip()
    except FileMissingError:
        return ""


def is_copy(storage: Storage, served: TableLocation) -> bool:
    """Whether ``storage`` is certainly another folder than ``served``, because this machine sees both.

    False wherever that is not certain: this machine cannot see one of the two, another file is at the served
    path here, or both folders show the same inode (hard links).
    """
    if os.path.realpath(storage.base_uri) == served.path or not os.path.isabs(served.path):
        return False
    file, said = (TABLE_ID, served.identity) if served.identity else (PROPERTIES_PATH, served.file)
    inode, ours, theirs = _inode(said), _seen(storage, file), _seen(LocalStorage(served.path), file)
    return bool(inode and ours) and theirs == inode != ours


def _seen(storage: Storage, file: str) -> str:
    """The inode of this file of the table; "" where it cannot be read."""
    try:
        status = storage.stat(file)
    except (OSError, ValueError):  # not ours to read; a path of another system
        return ""
    return _inode(status.file_id) if status is not None else ""


def _inode(file: str) -> str:
    """The inode in ``device:inode``. The device is ignored, because another machine numbers it
    differently.
    """
    return file.rpartition(":")[2]
