"""Tells whether the folder that a process was given is a copy of the table that a coordinator serves.

A copied folder holds the same identity (`table_id`) and names the same coordinator. Only the place differs:
the folder's real path, and device and inode of its `table-id`, a file that nobody replaces. A coordinator of
an earlier version tells those of `hoodie.properties` instead; Hudi replaces that file, and from then on
nothing can be concluded until the coordinator states its place anew.

A place is what the coordinator's machine or container sees. Another machine may see the same folder under
another path (a mount), on another device (each machine numbers devices itself, also for one NFS export), and,
through a few file systems, with other inodes. So two places that differ prove nothing by themselves.

A proof looks like this: the coordinator states /data/orders and file 2049:131. On this machine, too,
/data/orders has a `table-id` with inode 131, while table.path is /copy/orders with inode 977. This machine
sees both tables, so table.path is another one.
"""

from __future__ import annotations

import os

from tidemark.epoch_protocol.entries import TableLocation
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.table_config import PROPERTIES_PATH
from tidemark.ledger_client.table_id import TABLE_ID


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
