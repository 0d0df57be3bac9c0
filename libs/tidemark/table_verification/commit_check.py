"""Compares the commits of the active timelines with each other, and collects which files they wrote.

* Epochs ascend. An epoch without rows has no commit, so numbers may be missing.
* Positions continue exactly from one epoch to the next. Over missing epochs they may only advance.
* Each commit of ours names the one before it, which must be the one before it on the timeline.
* Both commits of an instant, in data and metadata table, have the same `tidemark.*` metadata.
* A new ledger starts at keyed position 0.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from tidemark.hudi_format.commit.instants import instant_path
from tidemark.hudi_format.errors import CorruptFileError
from tidemark.hudi_format.model import is_bootstrap_instant
from tidemark.hudi_format.schema import SchemaError, TableSchema, left_out
from tidemark.hudi_format.storage.base import Storage, name_of, parent_of
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, Action, Instant, Timeline
from tidemark.hudi_format.timeline.avro_records import SCHEMA_KEY, CommitMetadata, decode_commit_metadata
from tidemark.table_verification.findings import Findings, Kind
from tidemark.table_verification.seen_commits import OurCommit, SeenCommits

_PREFIX: Final = "tidemark."
_EPOCH: Final = "tidemark.epoch"
_PREVIOUS: Final = "tidemark.previous_instant"
_POSITIONS: Final = ("tidemark.keyed_offsets", "tidemark.source_offsets")
_WRITES: Final = (
    Action.COMMIT,
    Action.DELTA_COMMIT,
    Action.COMPACTION,
    Action.REPLACE_COMMIT,
    Action.CLUSTERING,
)
_TABLE_SERVICES: Final = (Action.COMPACTION, Action.CLUSTERING)
_METADATA_WRITES: Final = (Action.DELTA_COMMIT, Action.COMPACTION, Action.LOG_COMPACTION)

NamedFiles: TypeAlias = dict[str, dict[str, str]]
"""Partition -> file name -> requested instant of the commit that says it wrote the file."""


@dataclass
class CommitCounts:
    """How many commits were checked. ``without_rows``: epochs between ours without a commit; ``ledgers``:
    how often a new ledger began.
    """

    ours: int = 0
    foreign: int = 0
    without_rows: int = 0
    ledgers: int = 0
    first_epoch: int | None = None
    last_epoch: int | None = None


@dataclass
class CommitCheck:
    """The contents of the commits. ``last``: our newest one, also when an earlier run has checked it.
    ``schema``: the newest one that this run has read.
    """

    counts: CommitCounts = field(default_factory=CommitCounts)
    data_files: NamedFiles = field(default_factory=dict)
    metadata_files: NamedFiles = field(default_factory=dict)
    last: OurCommit | None = None
    schema: str = ""


def check_commits(
    storage: Storage, data: Timeline, metadata: Timeline, seen: SeenCommits | None, findings: Findings
) -> CommitCheck:
    """Checks every completed commit, or those that are not in ``seen``; adds differences to ``findings``.

    Raises FileMissingError when a commit was archived meanwhile.
    """
    result = CommitCheck(last=seen.last if seen is not None else None)
    result.counts.last_epoch = result.last.epoch if result.last is not None else None
    known = seen.data if seen is not None else frozenset()
    commits = [instant for instant in data.completed() if instant.file_name not in known]
    origins = _metadata_origins(storage, metadata, seen, commits, result, findings)
    bootstrapped = _bootstrapped(metadata)
    for instant in sorted(commits, key=lambda commit: str(commit.completion)):
        if instant.action not in _WRITES:
            continue
        _check_write(storage, data, instant, origins, result, findings)
        if str(instant.completion) > bootstrapped:
            _check_has_metadata_commit(instant, metadata, findings)
    return result


def _metadata_origins(
    storage: Storage,
    metadata: Timeline,
    seen: SeenCommits | None,
    commits: list[Instant],
    result: CommitCheck,
    findings: Findings,
) -> dict[str, dict[str, str]]:
    """Instant -> `tidemark.*` metadata, of the metadata table's commits that are new, or whose data commit
    is.
    """
    known = seen.metadata if seen is not None else frozenset()
    due = {commit.requested for commit in commits}
    origins: dict[str, dict[str, str]] = {}
    for instant in sorted(metadata.completed(*_METADATA_WRITES), key=lambda commit: str(commit.completion)):
        if instant.file_name in known and instant.requested not in due:
            continue
        commit = _read(storage, instant, METADATA_TABLE_ROOT, findings)
        if commit is not None:
            if is_bootstrap_instant(instant.requested):
                # The partition was built anew, so the files that were written to it before may be gone.
                for partition in commit.write_stats:
                    result.metadata_files.pop(partition, None)
            _take_names(commit, instant.requested, result.metadata_files)
            origins[instant.requested] = _ours(commit)
    return origins


def _check_write(
    storage: Storage,
    data: Timeline,
    instant: Instant,
    origins: Mapping[str, Mapping[str, str]],
    result: CommitCheck,
    findings: Findings,
) -> None:
    counts = result.counts
    metadata = _read(storage, instant, ".hoodie", findings)
    if metadata is None:
        return
    _take_names(metadata, instant.requested, result.data_files)
    # While a compaction is archived its completed file outlives the others, and is called `.commit` alone.
    if instant.action in _TABLE_SERVICES or metadata.compacted:
        return
    extra = _ours(metadata)
    _check_schema(instant.requested, metadata, bool(extra), result, findings)
    if not extra:
        counts.foreign += 1
        return
    counts.ours += 1
    other = origins.get(instant.requested, extra)
    if differing := sorted(key for key in extra.keys() | other.keys() if extra.get(key) != other.get(key)):
        findings.add_one(Kind.COMMITS_DIFFER, f"{instant.requested}: {', '.join(differing)}")
    commit = _parse(instant.requested, extra, findings)
    if commit is None:
        return
    _check_follows(extra.get(_PREVIOUS, ""), commit, result.last, data, findings)
    if result.last is not None:
        _check_pair(result.last, commit, counts, findings)
    if counts.first_epoch is None:
        counts.first_epoch = commit.epoch
    counts.last_epoch = commit.epoch
    result.last = commit


def _check_schema(
    instant: str, commit: CommitMetadata, is_ours: bool, result: CommitCheck, findings: Findings
) -> None:
    """Checks that a commit of ours has all columns of the commit before it."""
    text = commit.extra_metadata.get(SCHEMA_KEY, "")
    if not text or text == result.schema:
        return
    if is_ours and result.schema:
        try:
            before, after = (TableSchema.from_avro(avro).arrow for avro in (result.schema, text))
        except SchemaError as error:
            findings.add_one(Kind.UNREADABLE, f"{instant}: its schema is not readable: {error}")
            return
        if lost := left_out(before, after):
            findings.add_one(Kind.COLUMN_NOT_IN_SCHEMA, f"{instant}: {', '.join(lost)}")
    result.schema = text


def _read(storage: Storage, instant: Instant, root: str, findings: Findings) -> CommitMetadata | None:
    path = instant_path(instant, root)
    try:
        # A replacecommit's record begins like a commit's; the rest of it is not needed here.
        return decode_commit_metadata(storage.read(path), path)
    except CorruptFileError as error:
        findings.add_one(Kind.UNREADABLE, f"{path}: {error}")
        return None


def _take_names(commit: CommitMetadata, instant: str, names: NamedFiles) -> None:
    for stat in commit.stats():
        if stat.path:
            names.setdefault(parent_of(stat.path), {})[name_of(stat.path)] = instant


def _ours(commit: CommitMetadata) -> dict[str, str]:
    return {key: value for key, value in commit.extra_metadata.items() if key.startswith(_PREFIX)}


def _bootstrapped(metadata: Timeline) -> str:
    """When the metadata table was made. Instants that completed before have no commit there."""
    instants = metadata.completed()
    return max((str(one.completion) for one in instants if is_bootstrap_instant(one.requested)), default="")


def _check_has_metadata_commit(instant: Instant, metadata: Timeline, findings: Findings) -> None:
    commit = metadata.find(instant.requested)
    archived = commit is None and metadata.is_archived(instant.requested)
    if not archived and (commit is None or not commit.is_completed):
        findings.add_one(
            Kind.COMMITS_DIFFER,
            f"{instant.requested}: the metadata table has no completed commit of this {instant.action.value}",
        )


def _parse(instant: str, extra: Mapping[str, str], findings: Findings) -> OurCommit | None:
    try:
        ranges = {key: dict(_lanes(json.loads(extra[key]))) for key in _POSITIONS}
        return OurCommit(instant, int(extra[_EPOCH]), ranges)
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        findings.add_one(Kind.COMMITS_DIFFER, f"{instant}: its tidemark.* metadata is unreadable: {error!r}")
        return None


def _lanes(document: Any) -> Iterator[tuple[str, tuple[int, int]]]:
    for topic, partitions in document.items():
        for partition, (first, following) in partitions.items():
            yield f"{topic}:{partition}", (int(first), int(following))


def _check_follows(
    previous: str, commit: OurCommit, last: OurCommit | None, data: Timeline, findings: Findings
) -> None:
    """Checks that the previous commit, which this one names, still exists.

    ``last``: our commit before this one on the timeline; None if that was archived.
    """
    is_there = data.is_committed(previous) if last is None else previous == last.instant
    # The first commit of a new ledger names none, also on a table with archived commits of ours.
    if previous and not is_there:
        before = f", before it comes {last.instant} (epoch {last.epoch})" if last is not None else ""
        findings.add_one(
            Kind.COMMIT_GONE,
            f"{commit.instant} (epoch {commit.epoch}) was committed after {previous}, which is gone{before}",
        )


def _check_pair(before: OurCommit, after: OurCommit, counts: CommitCounts, findings: Findings) -> None:
    if after.epoch <= before.epoch:
        findings.add_one(
            Kind.EPOCH_ORDER, f"{after.instant} is epoch {after.epoch}, {before.instant} is {before.epoch}"
        )
        return
    counts.without_rows += after.epoch - before.epoch - 1
    if _is_new_ledger(before, after):
        counts.ledgers += 1
        return
    exact = after.epoch == before.epoch + 1
    for key in _POSITIONS:
        for lane, (first, following) in sorted(after.ranges[key].items()):
            reached = before.ranges[key].get(lane, (0, 0))[1]
            # The first range of a lane may start at any offset (retention, input.start).
            continues = first == reached or (first > reached and (not exact or reached == 0))
            if not continues or following < first:
                findings.add_one(
                    Kind.OFFSETS_GAP,
                    f"{after.instant} (epoch {after.epoch}): {key.removeprefix(_PREFIX)} {lane} is "
                    f"[{first}, {following}), epoch {before.epoch} ({before.instant}) ended at {reached}",
                )


def _is_new_ledger(before: OurCommit, after: OurCommit) -> bool:
    reached = [following for _, following in before.ranges[_POSITIONS[0]].values()]
    starts = [first for first, _ in after.ranges[_POSITIONS[0]].values()]
    return max(reached, default=0) > 0 and bool(starts) and max(starts) == 0
