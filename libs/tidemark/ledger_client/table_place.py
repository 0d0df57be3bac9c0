"""Whether the folder that a process was given is a copy of the table that a coordinator serves.

A copy has the table's identity too (`table_id`), and the name of its coordinator. What tells them apart is
where the table lies: its folder's real path, and device and inode of its `table-id`, which nobody writes anew
(`hoodie.properties` of a coordinator that says no more: Hudi writes that anew, and nothing is told from then
on, until the coordinator says where it lies now). Both are as the
coordinator's machine or container sees them, and another one may see the same folder under another path (a
mount), on another device (each machine numbers those for itself, also of one NFS export) and, through a few
file systems, under other inodes. So two places that differ prove nothing by themselves.

Example of what does: the coordinator says /data/orders, file 2049:131. Here /data/orders has a file of inode
131, and table.path is /copy/orders with a file of inode 977: both tables are seen from here, and table.path
is the other one.
"""

from __future__ import annotations

import os

from tidemark.epoch_protocol.entries import TableLocation
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.table_config import PROPERTIES_PATH
from tidemark.ledger_client.table_id import TABLE_ID


def is_copy(storage: Storage, served: TableLocation) -> bool:
    """Whether ``storage`` is another folder than ``served``, for certain: both are seen from here.

    False wherever that cannot be told: the served folder, or ours, is not seen here; another file lies at
    the served path here; the file has no number of its own (hard links).
    """
    if os.path.realpath(storage.base_uri) == served.path or not os.path.isabs(served.path):
        return False
    file, said = (TABLE_ID, served.identity) if served.identity else (PROPERTIES_PATH, served.file)
    inode, ours, theirs = _inode(said), _seen(storage, file), _seen(LocalStorage(served.path), file)
    return bool(inode and ours) and theirs == inode != ours


def _seen(storage: Storage, file: str) -> str:
    """The inode of this file of the table; "" where none can be seen."""
    try:
        found = storage.stat(file)
    except (OSError, ValueError):  # not ours to read; a path of another system
        return ""
    return _inode(found.file_id) if found is not None else ""


def _inode(file: str) -> str:
    """Of ``device:inode``. Devices are left out: another machine has other ones."""
    return file.rpartition(":")[2]
