"""`tidemark table create` makes a table, `adopt` prepares one that is there. No service may run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, NamedTuple

from tidemark.commit_coordinator.errors import CoordinatorError
from tidemark.commit_coordinator.offline.adopted_stats import AdoptedStats, StatsToAdopt
from tidemark.commit_coordinator.offline.table import is_half_made_here
from tidemark.commit_coordinator.opening.table_open import OpenedTable, open_table, read_table
from tidemark.config import TableConfigFile
from tidemark.errors import ErrorKind
from tidemark.hudi_format.errors import LockLostError
from tidemark.hudi_format.metadata_table.partitions.secondary_index import SECONDARY_PREFIX
from tidemark.hudi_format.publication.locate import open_publication
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.storage.locate import open_storage
from tidemark.hudi_format.table_config import PROPERTIES_PATH, read_table_config
from tidemark.hudi_format.table_properties import check_properties
from tidemark.hudi_format.table_repairs import drop_stats, pin_timezone
from tidemark.hudi_format.table_schema import check_no_schema_on_read
from tidemark.hudi_format.timeline import load_timeline
from tidemark.hudi_format.validation import as_adopted
from tidemark.ledger_client.table_identity import known_ledger_id
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.ids import IdSource

_LOCK_WAIT_MS: Final = 5_000


class AdoptionError(CoordinatorError):
    """There is already a table, or none, or a coordinator left its lock; the text says what to do."""

    kind = ErrorKind.CONFLICT


class Adopted(NamedTuple):
    """`table`: a document like that of `create_table`. `pinned`: the table's time zone was set. `dropped`:
    the stats that were switched off. `stats`: what was done to those that stay. `secondary`: the secondary
    indexes, which nobody compared with the rows yet.
    """

    table: dict[str, Any]
    pinned: bool
    dropped: list[str]
    stats: AdoptedStats
    secondary: list[str]


def create_table(config: TableConfigFile, clock: Clock) -> dict[str, Any]:
    """Creates a table; returns its name, path, type, shards and columns.

    Raises AdoptionError when there is a table already, CreationError for a folder in use, and as
    `open_table`.
    """
    storage = open_storage(config.table.path)
    if storage.exists(PROPERTIES_PATH) and not is_half_made_here(config, storage):
        raise AdoptionError(
            f"{storage.base_uri} is a Hudi table already: `tidemark table describe` shows it, "
            "`tidemark table adopt` takes it over"
        )
    return _summary(config, open_table(config, storage, clock))


def check_adoptable(config: TableConfigFile, stats: bool, pending_allowed: bool = False) -> None:
    """Raises what `adopt_table` would raise, before anything is changed. The arguments are the same."""
    storage = _adoptable(config)
    if not is_half_made_here(config, storage):
        read_table(config, storage, _pending(storage, pending_allowed), partial(as_adopted, stats=stats))


def adopt_table(
    config: TableConfigFile, clock: Clock, ids: IdSource, stats: bool, pending_allowed: bool = False
) -> Adopted:
    """Sets the table's time zone, and makes its column stats ours; with `stats` drops them instead. Call
    `check_adoptable` before.

    `pending_allowed`: a new ledger follows, which rolls back the pending writes of dead writers and ends the
    terms of dead coordinators. Raises AdoptionError, UnsupportedTableError, TableMismatchError,
    LockHeldError.
    """
    storage = open_storage(config.table.path)
    pending = _pending(storage, pending_allowed)
    kept = None
    if not stats and not is_half_made_here(config, storage):
        kept = StatsToAdopt(storage, read_table(config, storage, pending, partial(as_adopted, stats=False)))
    with table_lock(storage, clock, ids, ends_terms=pending_allowed):
        pinned = pin_timezone(storage, clock)
        dropped = sorted(drop_stats(storage)) if stats else []
        adopted = AdoptedStats() if kept is None else kept.adopt(clock)
    opened = open_table(config, storage, clock, _pending(storage, pending_allowed))
    names = opened.config.metadata_partitions
    secondary = sorted(name for name in names if name.startswith(SECONDARY_PREFIX))
    return Adopted(_summary(config, opened), pinned, dropped, adopted, secondary)


def check_moved(config: TableConfigFile, clock: Clock) -> dict[str, Any]:
    """Checks a table that was moved with its ledger; returns its summary. Changes nothing.

    A killed coordinator may have left its lock and its open epoch: the next coordinator takes both over.
    Raises as `adopt_table`.
    """
    return _summary(config, open_table(config, _adoptable(config), clock, None))


def _adoptable(config: TableConfigFile) -> Storage:
    """The existing table's storage. Raises for properties and schemas that adopting would not change."""
    storage = open_storage(config.table.path)
    if not storage.exists(PROPERTIES_PATH):
        raise AdoptionError(
            f"{storage.base_uri} is no Hudi table (it has no {PROPERTIES_PATH}): check table.path, or run "
            "`tidemark table create`"
        )
    check_properties(read_table_config(storage), config.table.accept_properties)
    check_no_schema_on_read(storage)
    return storage


def _pending(storage: Storage, allowed: bool) -> list[str]:
    return [instant.requested for instant in load_timeline(storage).pending()] if allowed else []


@contextmanager
def table_lock(storage: Storage, clock: Clock, ids: IdSource, ends_terms: bool) -> Iterator[None]:
    """Holds the table's lock. ``ends_terms``: takes it also from a dead coordinator, whose term is ended, and
    then leaves it taken for the new ledger that follows: the dead coordinator's epoch may be committed in the
    metadata table only.

    That is for a table whose topics are lost: without them `tidemark recover` cannot free the lock.
    """
    publication = open_publication(storage, clock, ids)
    with publication.lock_of_no_term(known_ledger_id(storage)) as lock:
        holder = lock.holder()
        is_left = ends_terms and holder is not None and not holder.is_foreign
        if is_left:
            publication.end_all_terms()
        try:
            lock.acquire(_LOCK_WAIT_MS)
        except LockLostError as error:
            raise AdoptionError(f"{error}: a coordinator left it. `tidemark recover` frees it") from error
        try:
            yield
        finally:
            if not is_left:
                lock.release()


def _summary(config: TableConfigFile, opened: OpenedTable) -> dict[str, Any]:
    return {
        "name": opened.config.name,
        "path": config.table.path,
        "type": opened.config.table_type.value,
        "index_kind": opened.kind.value,
        "shards": opened.num_shards,
        "columns": opened.schema.arrow.names,
    }
