"""An index that another writer builds: no commit of ours completes meanwhile.

Hudi builds an index from the table as it was when it began, and passes over every instant that the metadata
table has by then. A commit that completed in between would be missing from the index for ever, and readers
would lose its rows: they use an index from its definition on. So while an index is defined and not listed, or
one of any kind is named as being built,

1. an attempt is void, and its instant with its heartbeat goes, for which Spark's CREATE INDEX waits,
2. no epoch is planned, and `status` says why,
3. under the lock the index is taken out once nobody can be building any more: two minutes after it was seen
   first, but while an indexing instant is pending not before its files are as old as `limits.index_build` (an
   hour). Such an instant has no heartbeat. What the dead builder left pending on the timelines goes as well
   (`builds_of_others`). The table's properties lose its name first: with a name and no definition the table
   would be refused, if we died in between. Then the definition goes. Readers and writers leave an index
   without definition alone; of column stats it stays, as their switch is the property alone, and a write that
   is in flight may go on to use it.
   The list of files and the record index are never taken out: without them the table is not served. Who left
   one of these half made has to be seen by people: `status` and the alert go on to name it.

A restore of Hudi's to a savepoint leaves the same behind: it takes a secondary index out of the property,
moves its folder away, and leaves its definition. Spark's next write builds it anew at its start, in one hold
of the lock. Who never writes again never builds it, so it is taken out as well. `status` then tells what to
do, until the index is there again or this coordinator is replaced, a day at most.

A definition that comes once an epoch is decided changes nothing for that epoch. CREATE INDEX writes it
without the table's lock, which the epoch keeps until its data commit, also where its coordinator dies; it
takes the lock before it chooses what to read. So it builds behind the epoch. Example: the epoch is in the
metadata table at 10:00, and the coordinator dies. CREATE INDEX writes the definition at 10:01 and waits. A
successor makes the data commit at 10:02, the index is built with it, and the next epoch waits. A build may
have begun in between (`begun_since`) where the lock was lost, or by Hudi's indexer, which plans and begins
without it: then the decision is taken back. Behind the metadata commit nobody can go on, because the indexer
passes over an instant that the metadata table has.

Once it is listed, plans name it, and the comparison of plan and decision (`kept_indexes`) does the rest.
Example: CREATE INDEX begins at 10:00 with the commits until then. An epoch that was planned at 09:59 is
decided at 10:01, its entries would be in no index: it is void. The index is listed at 10:05, and the epoch is
planned again with its entries.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from tidemark.commit_coordinator.commit.builds_of_others import end_dead_builds, living_builds
from tidemark.commit_coordinator.commit.context import Context, UnfinishedIndex
from tidemark.commit_coordinator.commit.served_table import check_served
from tidemark.commit_coordinator.commit.table_state import Timelines
from tidemark.commit_coordinator.commit.taken_out_index import how_to_make, take_out_indexes
from tidemark.commit_coordinator.errors import AttemptLostError
from tidemark.epoch_protocol.entries import CommitDecided
from tidemark.hudi_format.commit.instants import instant_path
from tidemark.hudi_format.errors import IndexUnfinishedError
from tidemark.hudi_format.metadata_table.other_indexes import NEEDED
from tidemark.hudi_format.model import is_bootstrap_instant
from tidemark.hudi_format.table_config import TableConfig
from tidemark.hudi_format.timeline import DATA_ROOT, METADATA_TABLE_ROOT, Action, Instant, State

NOBODY_BUILDS_S: Final = 120
_log: Final = logging.getLogger("tidemark.coordinator")


def check_commits(context: Context, timelines: Timelines) -> TableConfig:
    """As `check_served`, for an epoch. Raises also AttemptLostError while another writer has an index
    unfinished.
    """
    try:
        config = check_served(context)
    except IndexUnfinishedError as error:
        if not _take_out_dead(context, timelines, error.index):
            reason = f"{error}. Nothing is lost, all input is kept; commits go on when it is listed"
            raise AttemptLostError(reason, rewind=False, awaited=error.index) from error
        return check_commits(context, timelines)
    context.unfinished = None
    for name in context.indexes_taken_out.keys() & config.metadata_partitions:
        del context.indexes_taken_out[name]
    return config


def begun_since(context: Context, timelines: Timelines, decided: CommitDecided) -> str:
    """The first pending file of a build of an index that began since the decision, "" when there is none.

    By the times of files: clocks of writers may be hours apart. Within the same tick of the storage's clock
    it counts as begun since: before the decision there was no definition, with which each build begins.
    """
    pending = [(found, DATA_ROOT) for found in timelines.data.pending(Action.INDEXING)]
    pending += [
        (found, METADATA_TABLE_ROOT)
        for found in timelines.metadata.pending()
        if is_bootstrap_instant(found.requested)
    ]
    if not pending:
        return ""
    decided_ms = context.publishing.written_ms(decided.statuses_path) or 0
    for path in _pending_files(pending):
        begun_ms = context.publishing.written_ms(path)
        if begun_ms is not None and begun_ms >= decided_ms:
            return path
    return ""


def _pending_files(instants: Iterable[tuple[Instant, str]]) -> list[str]:
    """The requested and the inflight file of each instant, of which the latter may not be there."""
    return [
        instant_path(Instant(found.requested, found.action, state), root)
        for found, root in instants
        for state in (State.REQUESTED, State.INFLIGHT)
    ]


def _take_out_dead(context: Context, timelines: Timelines, index: str) -> bool:
    """Takes the index out if nobody builds it any more; returns whether it did. ``index``: what is
    unfinished, several names with commas between them.
    """
    now_s, seen = context.clock.monotonic_s(), context.unfinished
    if seen is None or seen.name != index:
        seen = context.unfinished = UnfinishedIndex(index, now_s)
    names, waited_s = set(index.split(",")) - NEEDED, now_s - seen.since_s
    if not names or waited_s < NOBODY_BUILDS_S or living_builds(context, timelines):
        return False
    context.lock.check()
    columns = take_out_indexes(context.publishing, names)
    end_dead_builds(context, timelines)
    context.unfinished = None
    for name in sorted(names):
        reason = _what_to_do(round(waited_s), name, columns.get(name))
        context.note_taken_out(name, reason)
        _log.warning("%s: %s", name, reason)
    return True


def _what_to_do(seconds: int, name: str, column: str | None) -> str:
    """What became of an index that nobody built, and how it comes back. ``column``: of a secondary one."""
    return (
        f"unfinished for {seconds} s, and nobody builds it: it was taken out of the table. Either its "
        "builder died, or a restore by another engine dropped the index and no write built it anew. Queries "
        f"lose no rows, and read more files. {how_to_make(name, column)}"
    )
