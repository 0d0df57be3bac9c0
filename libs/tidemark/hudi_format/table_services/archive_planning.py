"""Plans which instants go from an active timeline to its archive: the oldest ones, up to the first that
somebody still needs there.

Pure. Readers take what is older than the active timeline's start for archived, so instants go in order of
requested time and none is left out in between (TABLE_SERVICES.md, section 6.1). The longest prefix that all
bounds allow goes. Cleans and rollbacks go with the writes around them.

What stays behind has to be newer than what went, whatever its kind: Hudi takes an archived commit for pending
when it is newer than the first instant of *any* kind on the active timeline, and counts its log files to the
newest slice (docs/hudi-beside.md). A pending instant therefore stops archival. So does a completed restore or
indexing, which Hudi never archives; behind it only instants go of which no log file is left.

A log file belongs to the newest base file that was requested before the log file's write completed. Readers
without the archive (hudi-rs) know of an archived write only when it was requested. Example: a write is
requested at 1, a compaction at 2, the write completes at 3. Its rows are behind the compaction, and once it
is archived such a reader looks for them before it. So it stays until its file groups are compacted again.

A build of an index puts an instant `0000…N` on the metadata table's timeline, which begins there from then
on: what was archived before counts no more (TABLE_SERVICES.md, section 5). So a compaction stays as long as
it made the base file of a current slice. Example: one at 10 merges both shards of the record index, one at 50
the first alone, as nothing was written to the other. Without the instant 10 a build hides the whole second
shard.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from tidemark.hudi_format.errors import CorruptFileError
from tidemark.hudi_format.timeline import DATA_ROOT, METADATA_TABLE_ROOT, Action, Instant, State, Timeline
from tidemark.hudi_format.timeline.archive_files import data_file_name

STAYING: Final = frozenset({Action.RESTORE, Action.INDEXING})
"""What Hudi never archives once it is completed."""
_BESIDE: Final = frozenset({Action.CLEAN, Action.ROLLBACK})
_REPLACING: Final = (Action.REPLACE_COMMIT, Action.CLUSTERING)


class ArchivedName(msgspec.Struct, frozen=True, array_like=True):
    """One instant of a plan. `action` is the word of its requested file."""

    requested: str
    completion: str
    action: str

    def instant(self) -> Instant:
        """The instant as it is on the timeline."""
        return Instant(self.requested, Action(self.action), State.COMPLETED, self.completion)


class ArchivePlan(msgspec.Struct, frozen=True):
    """The instants of one timeline that go to its archive, in order of requested time; never empty."""

    is_index: bool
    instants: tuple[ArchivedName, ...]

    @property
    def root(self) -> str:
        """The root of the timeline."""
        return METADATA_TABLE_ROOT if self.is_index else DATA_ROOT

    @property
    def file_name(self) -> str:
        """The name of the archive's file that gets them."""
        return data_file_name(self.instants[0].requested, self.instants[-1].requested, 0)

    def encode(self) -> bytes:
        """The plan as a document."""
        return msgspec.json.encode(self, order="deterministic")


FORGOTTEN_AFTER: Final = 3
BEHIND_AFTER: Final = 10
BEHIND_WRITES: Final = 3_000
IDLE_AFTER: Final = 5
IDLE_WRITES: Final = 1_500
BASE_IN_USE: Final = "a base file whose file group was not written to since"


def decode_archive_plan(data: bytes, path: str) -> ArchivePlan:
    """The plan in the document at ``path``. Raises CorruptFileError."""
    try:
        return msgspec.json.decode(data, type=ArchivePlan)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptFileError(f"{path} is no plan of an archival: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveBounds:
    """What has to stay for our own sake. ``least``: so many completed writes of the data table stay.

    ``open_instants``: requested times of open service actions and attempts. ``last_commit``: the instant of
    the last committed epoch with rows; it and the write before it stay, unless `FORGOTTEN_AFTER` times
    ``least`` writes came after it: then Tidemark is idle beside another engine, and goes on from what the
    archive and its own record say.

    A write that lies behind a later compaction stays, too, unless ``behind`` writes came after it, and
    `BEHIND_AFTER` times ``least``: its file group may never be compacted again, and timelines are bounded.

    A compaction that made the base file of a current slice of the metadata table stays in the same way,
    unless ``idle`` writes came after it, and `IDLE_AFTER` times ``least``. These are fewer: where rows are
    updated alone nothing is written to the record index, and its timeline grows that long.
    """

    least: int
    behind: int = BEHIND_WRITES
    idle: int = IDLE_WRITES
    open_instants: Collection[str] = ()
    last_commit: str | None = None


class Archivable(NamedTuple):
    """``instants``: what may go, in order of requested time. ``held_by``: what holds back the rest, for
    people.
    """

    instants: tuple[Instant, ...]
    held_by: str


def left_behind(plan: ArchivePlan, found: Archivable) -> Instant | None:
    """An instant that may go by now, is older than the plan's last one, and is not in the plan: it would stay
    alone. Example: the plan has 10 and 20, and a build of an index made `0000…0` meanwhile. Without it the
    timeline would begin at `0000…0`, and what the plan takes would count no more. None: there is none.
    """
    planned, last = {name.requested for name in plan.instants}, plan.instants[-1].requested
    for instant in found.instants:
        if instant.requested < last and instant.requested not in planned:
            return instant
    return None


class _Limit:
    """The least of several requested times: what is below it may go."""

    def __init__(self) -> None:
        self.time = "\uffff"
        self.reason = "nothing"

    def at(self, time: str | None, reason: str) -> None:
        if time is not None and time < self.time:
            self.time, self.reason = time, reason


def plan_data_archive(
    data: Timeline,
    metadata: Timeline,
    bounds: ArchiveBounds,
    *,
    is_gone: Callable[[Instant], bool],
    lies_behind: Callable[[Instant], bool],
    with_logs: Callable[[], Collection[str]],
) -> Archivable:
    """What may go from the data table's timeline.

    ``is_gone``: whether no file of the groups that a completed replacecommit replaced is left; it is asked
    in order, and only about replacecommits that nothing else holds back. ``lies_behind``: whether a log file
    of a completed write is in a current slice whose base file was requested after the write; it is asked in
    the same way, and only about writes that were open when a compaction was requested. ``with_logs``: the
    instants of all log files in the table; it is asked only where a restore or an indexing is on the
    timeline.

    Nothing goes while the metadata table has no completed compaction: its log blocks count only while their
    instants are on an active timeline (TABLE_SERVICES.md, section 2.4).
    """
    limit = _Limit()
    compacted = max((instant.requested for instant in metadata.completed(Action.COMPACTION)), default=None)
    if compacted is None:
        return Archivable((), "the metadata table was not compacted yet")
    writes = [instant.requested for instant in data.completed() if instant.action.is_write]
    limit.at(writes[-bounds.least] if 0 < bounds.least <= len(writes) else "", "the writes that always stay")
    _below_pending_write(limit, data, writes)
    for instant in data.completed():
        if str(instant.completion) >= compacted:
            limit.at(instant.requested, "the metadata table's newest compaction")
            break
    for savepoint in _savepoints(data):
        limit.at(savepoint, f"the savepoint {savepoint}")
    _own(limit, bounds, writes)
    _first_pending(limit, data)
    for instant in data.completed(*_REPLACING):
        if instant.requested >= limit.time:
            break
        if not is_gone(instant):
            limit.at(instant.requested, f"the file groups that {instant.file_name} replaced are not cleaned")
            break
    _behind(limit, data, bounds, writes, lies_behind)
    return _prefix(data, limit, with_logs)


def plan_metadata_archive(
    metadata: Timeline,
    data: Timeline,
    bounds: ArchiveBounds,
    *,
    in_slices: Callable[[Collection[str]], Collection[str]],
    under_slices: Callable[[], Collection[str]],
    with_logs: Callable[[], Collection[str]],
) -> Archivable:
    """What may go from the metadata table's timeline.

    ``in_slices``: those of the instants whose log files lie in current slices of its file groups, where Hudi
    would read them no more. ``under_slices``: the instants that made the base files of current slices, where
    they are to stay. ``with_logs``: as for the data table, of the metadata table's log files.
    """
    limit = _Limit()
    compactions = [instant.requested for instant in metadata.completed(Action.COMPACTION)]
    limit.at(max(compactions, default=""), "the newest compaction")
    first = data.first_active or ""
    _first_pending(limit, data)
    # A restore to a savepoint needs a compaction from before it: where Hudi finds none it deletes the
    # metadata table and leaves a wrong index. Any active write may get a savepoint later.
    savepoints = [(savepoint, f"the savepoint {savepoint}") for savepoint in _savepoints(data)]
    restorable = [(first, "the data table's timeline"), *savepoints]
    for write, reason in restorable:
        limit.at(max((found for found in compactions if found < write), default=write), reason)
    writes = [instant.requested for instant in metadata.completed() if instant.action.is_write]
    _own(limit, bounds, writes)
    _first_pending(limit, metadata)
    below = {instant.requested for instant in metadata.completed() if instant.requested < limit.time}
    limit.at(min(in_slices(below), default=None), "a log file that is not compacted yet")
    oldest = _newest_of(writes, max(IDLE_AFTER * bounds.least, bounds.idle))
    bases = (made for made in below.intersection(under_slices()) if made >= oldest)
    limit.at(min(bases, default=None), BASE_IN_USE)
    return _prefix(metadata, limit, with_logs)


def _savepoints(timeline: Timeline) -> list[str]:
    return [instant.requested for instant in timeline.instants if instant.action is Action.SAVEPOINT]


def _below_pending_write(limit: _Limit, timeline: Timeline, writes: Sequence[str]) -> None:
    pending = next((instant.requested for instant in timeline.pending() if instant.action.is_write), None)
    if pending is not None:
        # Hudi keeps the write before it, too.
        before = max((requested for requested in writes if requested < pending), default=pending)
        limit.at(before, f"the pending write {pending}")


def _first_pending(limit: _Limit, timeline: Timeline) -> None:
    pending = next(
        (instant for instant in timeline.pending() if instant.action is not Action.SAVEPOINT), None
    )
    if pending is not None:
        limit.at(pending.requested, f"the pending {pending.action.value} {pending.requested}")


def _own(limit: _Limit, bounds: ArchiveBounds, writes: Sequence[str]) -> None:
    for instant in bounds.open_instants:
        limit.at(instant, f"our open action {instant}")
    newer = sum(requested > (bounds.last_commit or "") for requested in writes)
    if bounds.last_commit is not None and newer < FORGOTTEN_AFTER * bounds.least:
        before = max(
            (requested for requested in writes if requested < bounds.last_commit), default=bounds.last_commit
        )
        limit.at(before, "the last committed epoch")


def _behind(
    limit: _Limit,
    data: Timeline,
    bounds: ArchiveBounds,
    writes: Sequence[str],
    lies_behind: Callable[[Instant], bool],
) -> None:
    """The first write that was open when a compaction was requested and that lies behind its base file. Of a
    compaction that is not completed nobody can tell yet; our own are on no timeline until they are decided.
    """
    compactions = [instant for instant in data.instants if instant.action is Action.COMPACTION]
    unfinished = {compaction.requested for compaction in compactions if not compaction.is_completed}
    unfinished.update(bounds.open_instants)
    times = sorted(unfinished.union(compaction.requested for compaction in compactions))
    oldest = _newest_of(writes, max(BEHIND_AFTER * bounds.least, bounds.behind))
    for write in data.completed(Action.DELTA_COMMIT):
        if write.requested >= limit.time:
            return
        beside = requested_beside(write, times)
        if beside and write.requested >= oldest and (unfinished.intersection(beside) or lies_behind(write)):
            limit.at(write.requested, f"{write.file_name}, which completed behind a compaction {beside[-1]}")
            return


def _newest_of(writes: Sequence[str], count: int) -> str:
    """The oldest of so many newest writes; "" where there are fewer."""
    return writes[-count] if 0 < count <= len(writes) else ""


def requested_beside(write: Instant, times: Sequence[str]) -> Sequence[str]:
    """Those of the sorted requested times at which the completed write was open."""
    return times[bisect_right(times, write.requested) : bisect_right(times, str(write.completion))]


def _prefix(timeline: Timeline, limit: _Limit, with_logs: Callable[[], Collection[str]]) -> Archivable:
    staying = next((instant for instant in timeline.completed() if instant.action in STAYING), None)
    if staying is not None and staying.requested < limit.time:
        logs = with_logs()
        for instant in timeline.completed():
            if staying.requested < instant.requested < limit.time and instant.requested in logs:
                reason = f"the {staying.action.value} {staying.requested}, and log files behind it"
                limit.at(instant.requested, reason)
                break
    below = [instant for instant in timeline.completed() if instant.requested < limit.time]
    last = max((instant.requested for instant in below if instant.action.is_write), default="")
    going = (
        instant
        for instant in below
        if instant.action.is_write or (instant.action in _BESIDE and instant.requested < last)
    )
    return Archivable(tuple(going), limit.reason)
