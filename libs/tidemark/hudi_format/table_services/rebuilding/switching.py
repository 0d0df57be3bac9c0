"""Puts a new record index in the place of the former one, and ends what a crash left of that.

The order, all under the table's lock (docs/adr/0016-rebuild-index.md has what readers see in between):

1. `index-rebuild.json` names the files that come.
2. `.hoodie_partition_metadata` of the index is replaced, so that caches see another index (`index_life`).
3. The new base files get their names. Their instant T is on no timeline: readers pass them over.
4. `T_C.commit` on the metadata table's timeline. **This one file is the switch**: before it every reader
   finds the former index, after it the new one.
5. `T.compaction.requested` and `.inflight`, which belong to a commit; Hudi's archival reads them. They come
   behind it, because with a *pending* T Hudi would count the new file groups.
6. A coordinator's claim names the new number of shards.
7. `index-rebuild.json` goes.

What a successor does (`next_step`):

| `index-rebuild.json` | `T_C.commit` | shards of the last claim | step |
|---|---|---|---|
| no | | | `REST` |
| yes | no | | `TAKE_BACK`: delete the files of 3, then the document |
| yes | yes | another number than the index has | `CLAIM` it |
| yes | yes | the index's | `FINISH`: steps 5 and 7 |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Final

from tidemark.hudi_format.commit.instants import completed_file, instant_path
from tidemark.hudi_format.metadata_table.bootstrap import partition_metadata
from tidemark.hudi_format.metadata_table.index_life import LIFE_PATH
from tidemark.hudi_format.publication.port import Term
from tidemark.hudi_format.publication.tickets import Ticket
from tidemark.hudi_format.storage.base import Storage, parent_of
from tidemark.hudi_format.table_services.rebuilding.documents import (
    REBUILD_PATH,
    Rebuild,
    begun_rebuild,
    encode,
)
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, Action, Instant, State, load_timeline

_PUBLISHED_AT_ONCE: Final = 128


class RebuildFailpoint(StrEnum):
    """The places of a switch at which a crash test may kill the process, each after the step of its name."""

    AFTER_REBUILD_NOTED = "after_rebuild_noted"
    AFTER_INDEX_LIFE = "after_index_life"
    AFTER_EACH_SHARD_FILE = "after_each_shard_file"
    AFTER_INDEX_SWITCHED = "after_index_switched"
    AFTER_REBUILD_REQUESTED = "after_rebuild_requested"
    AFTER_REBUILD_INFLIGHT = "after_rebuild_inflight"


class NextStep(StrEnum):
    REST = "rest"
    TAKE_BACK = "take back"
    CLAIM = "claim"
    FINISH = "finish"


Hit = Callable[[RebuildFailpoint], None]


def next_step(begun: Rebuild | None, is_switched: bool, claimed: int) -> NextStep:
    """What is to be done by the table above. ``claimed``: the number of shards that the ledger knows, 0 where
    no claim has named one. Pure.
    """
    if begun is None:
        return NextStep.REST
    if not is_switched:
        return NextStep.TAKE_BACK
    return NextStep.FINISH if claimed in (0, begun.shards) else NextStep.CLAIM


def is_switched(storage: Storage, rebuild: Rebuild) -> bool:
    """Whether the new index counts."""
    if completed_file(storage, rebuild.instant, METADATA_TABLE_ROOT) is not None:
        return True
    # Being older than the timeline's start does not tell: an instant that never was is older one day, too.
    archive, instant = load_timeline(storage, METADATA_TABLE_ROOT).archive, rebuild.instant
    return archive is not None and instant in archive.completion_times(instant, instant)


def shards_of_topics(storage: Storage, claimed: int) -> int:
    """The number of shards that the table's topics are good for: that of a rebuild which was switched to, and
    whose command died before it claimed the number; else ``claimed``, that of the last claim.
    """
    begun = begun_rebuild(storage)
    if begun is None or claimed != begun.former or not is_switched(storage, begun):
        return claimed
    return begun.shards


def switch(
    by: Term, rebuild: Rebuild, tickets: Sequence[Ticket], completion: str, commit: bytes, hit: Hit
) -> None:
    """Steps 1 to 5. Hold the lock of `by`. ``tickets``: of the files `rebuild` names. ``commit``: content of
    `T_C.commit`, where C is ``completion``.

    Raises FencedOutError where a coordinator began a later term, LockLostError, OSError. Then nothing is
    switched, or all is; `settle` tells.
    """
    by.replace(REBUILD_PATH, encode(rebuild))
    hit(RebuildFailpoint.AFTER_REBUILD_NOTED)
    by.replace(LIFE_PATH, partition_metadata(rebuild.instant, 1))
    hit(RebuildFailpoint.AFTER_INDEX_LIFE)
    for first in range(0, len(tickets), _PUBLISHED_AT_ONCE):
        by.publish(tickets[first : first + _PUBLISHED_AT_ONCE], by.lock.lease())
        hit(RebuildFailpoint.AFTER_EACH_SHARD_FILE)
    completed = Instant(rebuild.instant, Action.COMPACTION, State.COMPLETED, completion)
    _publish(by, completed, commit, leased=True)
    hit(RebuildFailpoint.AFTER_INDEX_SWITCHED)
    _finish_instant(by, rebuild, hit)


def settle(by: Term, claimed: int) -> NextStep:
    """Ends what a crash left of a switch, up to the claim; returns what it found. Hold the lock of `by`, and
    call it only when all earlier terms are ended. ``claimed``: as in `next_step`.
    """
    begun = begun_rebuild(by.storage)
    step = next_step(begun, begun is not None and is_switched(by.storage, begun), claimed)
    if begun is None or step is NextStep.REST:
        return step
    if step is NextStep.TAKE_BACK:
        for path in begun.paths:
            by.storage.delete(path)
        for folder in sorted({parent_of(path) for path in begun.paths}):
            by.storage.sync_dir(folder)
    elif completed_file(by.storage, begun.instant, METADATA_TABLE_ROOT) is not None:
        # An instant that was archived since has had them.
        _finish_instant(by, begun, lambda _: None)
    if step is not NextStep.CLAIM:
        by.storage.delete(REBUILD_PATH)
        by.storage.sync_dir(parent_of(REBUILD_PATH))
    return step


def _finish_instant(by: Term, rebuild: Rebuild, hit: Hit) -> None:
    requested = Instant(rebuild.instant, Action.COMPACTION, State.REQUESTED)
    _publish(by, requested, rebuild.requested)
    hit(RebuildFailpoint.AFTER_REBUILD_REQUESTED)
    _publish(by, requested.to(State.INFLIGHT), b"")
    hit(RebuildFailpoint.AFTER_REBUILD_INFLIGHT)


def _publish(by: Term, instant: Instant, content: bytes, *, leased: bool = False) -> None:
    path = instant_path(instant, METADATA_TABLE_ROOT)
    lease = by.lock.lease() if leased else None
    by.publish([by.prepare(path, content, name_decides=True)], lease)
