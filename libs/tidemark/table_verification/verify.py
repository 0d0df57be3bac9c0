"""Verifies a table from its files alone (guarantees G2, G3, and G1's "no key doubled").

1. Timelines: every completed instant has all its files, completion times are in order, and no metadata
   commit is without its data instant.
2. Commits: our epochs and positions continue without a gap, both commits of an instant have the same
   metadata, and the files that they wrote exist as long as readers need them.
3. Files: the `files` partition lists exactly the committed files in the storage; there are no orphans.
   Compactions merged the log files that were there, and archival left the instants of log files in use.
4. Rows and record index: every live key has one row and one entry, the entry names the row's file group,
   and no other entry exists. With a partitioned index that holds for each (partition, key).
5. Column stats, in a table that keeps them: each file with rows has a record of each column, and all rows of
   a file lie in its ranges.
6. Secondary indexes: each live row has its entry in each of them, and there is no other.

A full run checks everything. A run that goes on from a verified state checks all names (1, 3), in 2, 4 and 5
only what changed since (`seen_commits`, `compare_changed`), and in 6 everything. If rows and index differ, it
becomes a full run. Only a full run finds damage inside files that kept their names and sizes. Of a table with
a partitioned index all rows and entries are read each time.

The table may be written meanwhile: everything is judged as of one snapshot. If a clean, an archival or a
rollback removed files meanwhile, the run starts again with a newer snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Final

from tidemark.errors import ErrorKind
from tidemark.hudi_format.errors import FileMissingError, HudiFormatError, UnsupportedTableError
from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.index_definitions import (
    RECORD_INDEX,
    IndexKind,
    read_record_index_kind,
)
from tidemark.hudi_format.metadata_table.partitions.partition import METADATA_TABLE_PATH
from tidemark.hudi_format.metadata_table.secondary_layout import IndexChangedError
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot, every_metadata_slice
from tidemark.hudi_format.model import RecordLocation, shard_ids
from tidemark.hudi_format.storage.base import Storage, join_path
from tidemark.hudi_format.table_config import TableConfig, read_table_config
from tidemark.hudi_format.table_view import TableView
from tidemark.hudi_format.timeline import DATA_ROOT, METADATA_TABLE_ROOT, Action, Timeline, load_timeline
from tidemark.table_verification.commit_check import CommitCheck, CommitCounts, check_commits
from tidemark.table_verification.committed_files import (
    CommittedFiles,
    MetadataFiles,
    check_listing,
    check_named,
    cleaned_files,
    list_committed,
)
from tidemark.table_verification.compactions import Compactions
from tidemark.table_verification.compare_all import Compared, compare_all, compare_partitioned
from tidemark.table_verification.compare_changed import compare_changed
from tidemark.table_verification.findings import Findings
from tidemark.table_verification.live_keys import LiveKeys
from tidemark.table_verification.secondary_check import check_secondary_indexes
from tidemark.table_verification.seen_commits import SeenCommits
from tidemark.table_verification.slice_check import check_archived_logs, check_plans, long_slices
from tidemark.table_verification.stats_check import check_column_stats, stats_rules
from tidemark.table_verification.timeline_check import check_timelines
from tidemark.table_verification.verified_state import (
    VerifiedGroup,
    VerifiedState,
    fingerprints,
    verified_state,
)

_PAUSES_S: Final = (1.0, 4.0, 15.0, 40.0)
"""Before the second reading, the third, and so on. Beside a stream, archival and cleaning remove files every
few minutes, for up to half a minute at a time: readings without pauses all fell into one of those times.
"""
_REMOVING: Final = (Action.CLEAN, Action.ROLLBACK, Action.RESTORE)


class UndecidedError(HudiFormatError):
    """Files were removed during each reading, so it is not known whether the table agrees: try again."""

    kind = ErrorKind.RETRYABLE


@dataclass(frozen=True)
class Verification:
    """What was compared, and the differences.

    ``as_of``: completion time of the newest verified instant. ``since``: that of the state from which the
    run went on; None for a full run. ``ignored_files``: data files of writes that have not ended.
    ``to_be_deleted``: data files that nobody lists and that go: a completed clean names them, or another
    engine made the same slice. ``warnings``: what is no difference, but makes readers slow. ``state``: for
    the next run; None when there are differences, and for a partitioned index.
    """

    path: str
    as_of: str | None
    since: str | None
    partitions: int
    file_groups: int
    shards: int
    files: int
    ignored_files: int
    to_be_deleted: int
    warnings: tuple[str, ...]
    compared: Compared
    commits: CommitCounts
    findings: Findings
    state: VerifiedState | None

    @property
    def agrees(self) -> bool:
        """Whether no difference was found."""
        return not self.findings.counts

    @property
    def rows(self) -> int:
        """Number of live rows of the table."""
        return self.compared.rows

    @property
    def entries(self) -> int:
        """Number of entries of the record index."""
        return self.compared.entries


def verify_table(
    storage: Storage,
    say: Callable[[str], None],
    state: VerifiedState | None = None,
    wait: Callable[[float], None] = lambda _: None,
) -> Verification:
    """Verifies the newest snapshot, going on from ``state`` if one is given. Writes nothing.

    ``say`` gets lines of progress. ``wait``: lets seconds pass between two readings; without it they follow
    each other at once. Raises FileMissingError (no table), UndecidedError, CorruptFileError,
    TimelineConflictError (try again), UnsupportedTableError.
    """
    before: Findings | None = None
    for pause_s in (*_PAUSES_S, None):
        config = read_table_config(storage)
        snapshot = MetadataTableSnapshot.load(storage)
        try:
            result = _Run(storage, config, snapshot, say).verify(state)
        except FileMissingError as error:
            if not isinstance(error, IndexChangedError) and not _moved(storage, snapshot):
                raise
            result = None
        if result is not None:
            if result.agrees or not _moved(storage, snapshot):
                return result
            if before is not None and result.findings.shares_an_example(before):
                # The difference was found in two snapshots, so no concurrent write or clean of one is its
                # cause.
                return result
            before = result.findings
        if pause_s is not None:
            say(f"files of the table were removed meanwhile: looking again in {pause_s:.0f} s")
            wait(pause_s)
    raise UndecidedError(
        f"{storage.base_uri}: files were removed during each of {len(_PAUSES_S) + 1} readings (cleaning, "
        "archival or rollback): verify again when that has ended"
    )


@dataclass(frozen=True)
class _Run:
    """The verification of one snapshot."""

    storage: Storage
    config: TableConfig
    snapshot: MetadataTableSnapshot
    say: Callable[[str], None]

    def verify(self, state: VerifiedState | None) -> Verification:
        storage, snapshot, findings = self.storage, self.snapshot, Findings()
        is_partitioned = self._is_partitioned()
        shards = len(snapshot.slices[RECORD_INDEX]) if is_partitioned else snapshot.num_shards
        if not shards and not is_partitioned:
            raise UnsupportedTableError(
                "the table has no record level index (a writer without its options deletes it)",
                "An upsert of a DataFrame without rows with the options that `tidemark table describe` "
                "prints builds it anew (docs/hudi-beside.md)",
            )
        timeline = snapshot.data_timeline
        check_timelines(storage, snapshot.validity, findings)
        commits = self._commits(state, findings)
        files = list_committed(storage, timeline, findings)
        slices, to_be_deleted = self._check_files(files, commits, findings)
        self._check_services(files, slices, findings)
        self.say(f"{files.count} committed files, {len(slices)} file groups, {shards} shards")
        live = LiveKeys(storage, self.config, timeline) if slices else None
        prints = fingerprints(slices, files.files)
        since = None
        rules = "" if live is None else live.rules + stats_rules(snapshot)
        compared: Compared | None
        if is_partitioned:
            compared = compare_partitioned(snapshot, slices, live, findings, self.say)
        elif state is not None and live is not None and rules == state.rules:
            compared = compare_changed(snapshot, slices, prints, live, state, self.say, files.files)
            if compared is None:
                self.say("rows and index do not agree: reading everything, to name what is wrong")
                return self.verify(None)
            since = state.as_of
        else:
            compared = compare_all(snapshot, slices, live, findings, self.say)
        if live is not None:
            known = {} if since is None or state is None else state.groups
            self._check_stats(live, slices, prints, known, findings)
            check_secondary_indexes(snapshot, self.config, live.schema, slices, findings, self.say)
        return Verification(
            path=storage.base_uri,
            as_of=timeline.newest_completion(),
            since=since,
            partitions=len(files.files),
            file_groups=len(slices),
            shards=shards,
            files=files.count,
            ignored_files=files.ignored,
            to_be_deleted=to_be_deleted,
            warnings=self._warnings(slices),
            compared=compared,
            commits=commits.counts,
            findings=findings,
            state=None
            if findings.counts or not rules or is_partitioned
            else self._state(rules, prints, compared, commits),
        )

    def _is_partitioned(self) -> bool:
        """Whether the record index has shards for each data partition, also while it has none."""
        kind = read_record_index_kind(self.storage)
        return self.snapshot.is_partitioned_index or kind is IndexKind.PARTITIONED

    def _commits(self, state: VerifiedState | None, findings: Findings) -> CommitCheck:
        data, metadata = self.snapshot.data_timeline, self.snapshot.metadata_timeline
        seen = state.commits if state is not None else None
        if seen is not None and not seen.still_holds(data, metadata):
            self.say("the timeline did not only go on: checking all commits")
            seen = None
        return check_commits(self.storage, data, metadata, seen, findings)

    def _check_files(
        self, files: CommittedFiles, commits: CommitCheck, findings: Findings
    ) -> tuple[list[FileSlice], int]:
        """The newest slices, and how many files are to be deleted."""
        storage, snapshot = self.storage, self.snapshot
        build = TableView.of(storage, snapshot.data_timeline).slices
        cleaned = cache(partial(cleaned_files, storage, snapshot.data_timeline))
        to_be_deleted = check_listing(files, snapshot.files, snapshot.data_timeline, build, findings, cleaned)
        check_named(commits.data_files, files.files, snapshot.files, build, "", findings)
        metadata = MetadataFiles.list(storage, snapshot.validity, findings)
        # Other partitions of the metadata table (statistics that Spark may keep) are not verified.
        named = {name: of_it for name, of_it in commits.metadata_files.items() if name in metadata.names}
        check_named(named, metadata.names, None, metadata.build, METADATA_TABLE_PATH, findings)
        return build(files.files), to_be_deleted

    def _check_services(self, files: CommittedFiles, slices: Sequence[FileSlice], findings: Findings) -> None:
        """What compactions merged, and what archival left, on both timelines."""
        storage, snapshot = self.storage, self.snapshot
        data, metadata = snapshot.data_timeline, snapshot.metadata_timeline
        every = TableView.of(storage, data).every_slice(files.files)
        check_plans(slices, every, Compactions(storage, data, DATA_ROOT), data, "", findings)
        names = {name: storage.names(join_path(METADATA_TABLE_PATH, name)) for name in snapshot.slices}
        check_plans(
            [file_slice for of_partition in snapshot.slices.values() for file_slice in of_partition],
            every_metadata_slice(names, snapshot.validity),
            Compactions(storage, metadata, METADATA_TABLE_ROOT),
            metadata,
            METADATA_TABLE_PATH,
            findings,
        )
        check_archived_logs(snapshot.slices, snapshot.validity, METADATA_TABLE_PATH, findings)

    def _check_stats(
        self,
        live: LiveKeys,
        slices: Sequence[FileSlice],
        prints: Mapping[RecordLocation, str],
        known: Mapping[RecordLocation, VerifiedGroup],
        findings: Findings,
    ) -> None:
        def is_changed(file_slice: FileSlice) -> bool:
            location = RecordLocation(file_slice.partition_path, file_slice.file_id)
            return location not in known or known[location].fingerprint != prints[location]

        check_column_stats(self.snapshot, self.config, live.schema, slices, is_changed, findings, self.say)

    def _warnings(self, slices: Iterable[FileSlice]) -> tuple[str, ...]:
        index = (file_slice for of_partition in self.snapshot.slices.values() for file_slice in of_partition)
        return (*long_slices("", slices), *long_slices(METADATA_TABLE_PATH, index))

    def _state(
        self,
        rules: str,
        prints: Mapping[RecordLocation, str],
        compared: Compared,
        commits: CommitCheck,
    ) -> VerifiedState:
        snapshot = self.snapshot
        seen = SeenCommits.of(snapshot.data_timeline, snapshot.metadata_timeline, commits.last)
        shards = [snapshot.shard(number).file_slice for number in shard_ids(snapshot.num_shards)]
        as_of = snapshot.data_timeline.newest_completion() or ""
        return verified_state(as_of, rules, prints, compared.digests, shards, seen)


def _moved(storage: Storage, snapshot: MetadataTableSnapshot) -> bool:
    """Whether files may have been removed since the snapshot (clean, rollback, archival), or a write became
    visible that was requested before the snapshot's newest instant.
    """
    pairs = ((DATA_ROOT, snapshot.data_timeline), (METADATA_TABLE_ROOT, snapshot.metadata_timeline))
    return any(_differs(before, load_timeline(storage, root)) for root, before in pairs)


def _differs(before: Timeline, after: Timeline) -> bool:
    removing = [
        {(instant.requested, instant.state) for instant in timeline.instants if instant.action in _REMOVING}
        for timeline in (before, after)
    ]
    then, now = ({instant.requested for instant in timeline.instants} for timeline in (before, after))
    newest = max(before.times(), default="")
    late = any(requested < newest for requested in now - then)
    return bool(then - now) or late or removing[0] != removing[1]
