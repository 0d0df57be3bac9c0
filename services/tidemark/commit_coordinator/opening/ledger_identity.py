"""Checks that the table's folder and the topics belong to the same ledger, and that the table was not copied.

The identity of a ledger is a uuid in the table's folder (`ledger_client.table_identity`). Every claim of a
coordinator and of lanes names it; so do caches, the lock, `JoinResponse` and `BeginResponse`. What was made
under another ledger is recognised by it. `tidemark table adopt --new-ledger` gives the table a new one.

A copy of the folder has the same uuid, so a coordinator's claim also names the table's place. The next claim
must come from the same place, which is one of

- the same real path;
- another path (a mount, or a table that was moved within its file system) with the same `table-id` file, by
  device and inode.

From any other place nobody claims before an operator has said whether the table was moved or copied: a copy
would continue the ledger of the table that it was copied from. Claims of earlier versions know the device and
inode of `hoodie.properties` only. These are no proof: Hudi writes that file anew, and the file of a copy may
get the inode of the original.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

from tidemark.commit_coordinator.commit.decisions_log import DecisionsLog
from tidemark.commit_coordinator.errors import CoordinatorError, DivergedError
from tidemark.commit_coordinator.opening.topics_setup import RECORD
from tidemark.config import TableConfigFile
from tidemark.epoch_protocol.entries import TableLocation
from tidemark.epoch_protocol.fold import Fold
from tidemark.epoch_protocol.state import FoldState
from tidemark.errors import ErrorKind
from tidemark.hudi_format.errors import AlreadyExistsError, HudiFormatError
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.table_config import PROPERTIES_PATH
from tidemark.ledger_client.table_identity import TABLE_ID, known_ledger_id, moved_or_copied_text
from tidemark.ledger_client.topics import TopicNames
from tidemark.stream_runtime.ids import IdSource
from tidemark.stream_runtime.kafka.ports import Admin


class MovedOrCopiedError(CoordinatorError):
    """The topics' ledger belongs to a table at another place; the text has a command for each case."""

    kind = ErrorKind.INVALID


def ledger_id(storage: Storage, ids: IdSource) -> str:
    """The ledger's identity in the table's folder; makes it if there is none.

    If two processes make it at the same time, both return the one that was first.
    """
    known = known_ledger_id(storage)
    if known:
        return known
    with contextlib.suppress(AlreadyExistsError):
        storage.create(TABLE_ID, ids.uuid().encode())
    return known_ledger_id(storage)


def location_of(storage: Storage) -> TableLocation:
    """The table's place now: real path, and device and inode of its two files. Raises OSError."""
    stats = (storage.stat(path) for path in (PROPERTIES_PATH, TABLE_ID))
    files = (info.file_id if info is not None else "" for info in stats)
    return TableLocation(os.path.realpath(storage.base_uri), *files)


def is_same_place(known: TableLocation | None, here: TableLocation) -> bool:
    """Whether the table at the ``known`` place is the one that is ``here``; True if no place is known.

    The same path is the same place, even with other files: they were restored from a backup, or written anew.
    """
    if known is None or known.path == here.path:
        return True
    if known.identity and here.identity:
        return known.identity == here.identity
    return bool(known.file) and known.file == here.file


def check_belongs(state: FoldState, table: str, ledger: str, here: TableLocation) -> None:
    """Raises DivergedError when topics and folder have different ledgers, MovedOrCopiedError when the table
    of the topics' ledger is at another place. ``ledger``: the folder's, "" if it has none. Writes nothing.
    """
    if not state.ledger:
        return
    at = state.location.path if state.location is not None else "another path"
    same_place = is_same_place(state.location, here)
    if ledger != state.ledger:
        way = (
            "If that table is given up: `tidemark table adopt --new-ledger` deletes those topics and "
            "starts a new ledger for this one"
            if same_place
            else "Each table needs a table.name of its own"
        )
        raise DivergedError(
            f"the topics {table}.* are ledger {state.ledger}, of the table at {at}; the table at "
            f"{here.path} has {f'ledger {ledger}' if ledger else 'no ledger'}: correct table.path, "
            f"table.name or kafka.bootstrap.servers. {way}"
        )
    if not same_place:
        raise MovedOrCopiedError(moved_or_copied_text(table, at, here.path))


def check_identity(
    config: TableConfigFile, storage: Storage, admin: Admin, log: DecisionsLog, fold: Callable[[], Fold]
) -> None:
    """Checks, before anything is made, that the folder and the topics belong together.

    Raises DivergedError and MovedOrCopiedError as `check_belongs` and `check_topics_there`.
    """
    table = config.table.name
    exists = admin.partitions(TopicNames(table).epochs) is not None
    check_topics_there(storage.exists(RECORD), exists, table, config.kafka.bootstrap_servers)
    if exists:
        try:
            log.catch_up()
        except HudiFormatError:
            # A document that the decisions name cannot be read here. If the folder is of another table, that
            # is the better error.
            check_belongs(fold().state, table, known_ledger_id(storage), location_of(storage))
            raise
        check_belongs(fold().state, table, known_ledger_id(storage), location_of(storage))


def check_topics_there(recorded: bool, exists: bool, table: str, servers: str) -> None:
    """Raises DivergedError when the table's ledger has begun, and its topics are not on this Kafka.

    They are not created: that would hide that the address is wrong, or that the topics were lost.
    """
    if recorded and not exists:
        raise DivergedError(
            f"the table's ledger has begun, but its topics {table}.* are not on {servers}: is "
            "kafka.bootstrap.servers right? If they were lost, `tidemark table adopt --new-ledger` starts "
            "a new ledger from the table's timeline"
        )
