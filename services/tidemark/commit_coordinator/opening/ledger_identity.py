"""Which ledger a table has, and whether the topics and the folder that meet here belong to each other.

A table's ledger has an identity: a uuid in the table's folder (`ledger_client.table_id`), made with the
table, which every claim of a coordinator and of lanes names. `tidemark table adopt --new-ledger` gives the
table another one. Caches, the lock, `JoinResponse` and `BeginResponse` name it as well, so what was made
under another ledger is recognised.

A copy of the folder has the same uuid. So a claim also names where the table lies. A claim is made only from
there: the same real path, or the same `table-id` (device and inode) under another path, a mount or a table
that was moved within its file system. Anywhere else an operator has to say whether the table was moved or
copied: a copy that went on would take the production of the table it was copied from. By `hoodie.properties`
(of claims that say no more) that cannot be told for sure: Hudi writes it anew, and a copy's may get the inode
of the former one.
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
from tidemark.ledger_client.served_by import moved_or_copied_text
from tidemark.ledger_client.table_id import TABLE_ID, known_ledger_id
from tidemark.ledger_client.topics import TopicNames
from tidemark.stream_runtime.ids import IdSource
from tidemark.stream_runtime.kafka.ports import Admin


class MovedOrCopiedError(CoordinatorError):
    """The topics' ledger belongs to a table that lies elsewhere; the text has a command for each case."""

    kind = ErrorKind.INVALID


def ledger_id(storage: Storage, ids: IdSource) -> str:
    """The identity in the table's folder; made when there is none. Of two that make it at once one holds."""
    found = known_ledger_id(storage)
    if found:
        return found
    with contextlib.suppress(AlreadyExistsError):
        storage.create(TABLE_ID, ids.uuid().encode())
    return known_ledger_id(storage)


def location_of(storage: Storage) -> TableLocation:
    """Where the table lies now."""
    found = (storage.stat(path) for path in (PROPERTIES_PATH, TABLE_ID))
    files = (info.file_id if info is not None else "" for info in found)
    return TableLocation(os.path.realpath(storage.base_uri), *files)


def is_same_place(known: TableLocation | None, here: TableLocation) -> bool:
    """Whether the table that lay there is the one that lies here. None: nothing is known, so nothing differs.

    Another file at the same path is no other table: put back from a backup, or written anew.
    """
    if known is None or known.path == here.path:
        return True
    if known.identity and here.identity:
        return known.identity == here.identity
    return bool(known.file) and known.file == here.file


def check_belongs(state: FoldState, table: str, ledger: str, here: TableLocation) -> None:
    """Raises DivergedError when topics and folder have different ledgers, MovedOrCopiedError when the ledger
    is that of a table elsewhere. ``ledger``: the folder's, "" when it has none. Writes nothing.
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
    """Do the folder and the topics belong together? Asked before anything is made. Raises as `check_belongs`
    and `check_topics_there`.
    """
    table = config.table.name
    exists = admin.partitions(TopicNames(table).epochs) is not None
    check_topics_there(storage.exists(RECORD), exists, table, config.kafka.bootstrap_servers)
    if exists:
        try:
            log.catch_up()
        except HudiFormatError:
            # Documents that the topics name lie with the table: with another one, perhaps.
            check_belongs(fold().state, table, known_ledger_id(storage), location_of(storage))
            raise
        check_belongs(fold().state, table, known_ledger_id(storage), location_of(storage))


def check_topics_there(recorded: bool, exists: bool, table: str, servers: str) -> None:
    """Raises DivergedError when the table's ledger began and its topics are not on this Kafka: made anew,
    they would hide that the address is wrong, or that they were lost.
    """
    if recorded and not exists:
        raise DivergedError(
            f"the table's ledger began, and its topics {table}.* are not on {servers}: is "
            "kafka.bootstrap.servers right? If they were lost, `tidemark table adopt --new-ledger` starts "
            "a new ledger from the table's timeline"
        )
