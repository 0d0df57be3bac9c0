"""The commits of the active timelines against each other: epochs in order, positions without a gap, both
commits of an instant saying the same, and which files they wrote.

An epoch without rows has no commit, so epoch numbers may jump; positions must continue exactly between
consecutive epochs, and never go back over a jump. What may not be jumped over is another commit: each names
the one before it. A ledger that was begun anew starts at keyed position 0.
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
    """What was looked at. `without_rows`: epochs between ours that have no commit; `ledgers`: starts anew."""

    ours: int = 0
    foreign: int = 0
    without_rows: int = 0
    ledgers: int = 0
    first_epoch: int | None = None
    last_epoch: int | None = None


@dataclass
class CommitCheck:
    """What the commits say. `last`: the newest of ours, also when an earlier run has checked it. `schema`:
    the newest one that this run has seen.
    """

    counts: CommitCounts = field(default_factory=CommitCounts)
    data_files: NamedFiles = field(default_factory=dict)
    metadata_files: NamedFiles = field(default_factory=dict)
    last: OurCommit | None = None
    schema: str = ""


def check_commits(
    storage: Storage, data: Timeline, metadata: Timeline, seen: SeenCommits | None, findings: Findings
) -> CommitCheck:
    """Reads every completed commit, or those that `seen` does not hold; adds what is wrong to `findings`.

    Raises FileMissingError when a commit was archived meanwhile.
    """
    result = CommitCheck(last=seen.last if seen is not None else None)
    result.counts.last_epoch = result.last.epoch if result.last is not None else None
    known = seen.data if seen is not None else frozenset()
    commits = [each for each in data.completed() if each.file_name not in known]
    origins = _metadata_origins(storage, metadata, seen, commits, result, findings)
    bootstrapped = _bootstrapped(metadata)
    for instant in sorted(commits, key=lambda each: str(each.completion)):
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
    """The `tidemark.*` metadata by instant, of the metadata table's commits that are new, or whose data
    commit is.
    """
    known = seen.metadata if seen is not None else frozenset()
    due = {each.requested for each in commits}
    origins: dict[str, dict[str, str]] = {}
    for instant in sorted(metadata.completed(*_METADATA_WRITES), key=lambda each: str(each.completion)):
        if instant.file_name in known and instant.requested not in due:
            continue
        found = _read(storage, instant, METADATA_TABLE_ROOT, findings)
        if found is not None:
            if is_bootstrap_instant(instant.requested):
                # A partition that is built anew begins anew: what was written to it before is not missed.
                for partition in found.write_stats:
                    result.metadata_files.pop(partition, None)
            _take_names(found, instant.requested, result.metadata_files)
            origins[instant.requested] = _ours(found)
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
    found = _read(storage, instant, ".hoodie", findings)
    if found is None:
        return
    _take_names(found, instant.requested, result.data_files)
    if instant.action in _TABLE_SERVICES:
        return
    extra = _ours(found)
    _check_schema(instant.requested, found, bool(extra), result, findings)
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
    """A commit of ours never lacks a column that the commit before it had."""
    text = commit.extra_metadata.get(SCHEMA_KEY, "")
    if not text or text == result.schema:
        return
    if is_ours and result.schema:
        try:
            before, after = (TableSchema.from_avro(each).arrow for each in (result.schema, text))
        except SchemaError as error:
            findings.add_one(Kind.UNREADABLE, f"{instant}: its schema is not readable: {error}")
            return
        if lost := left_out(before, after):
            findings.add_one(Kind.COLUMN_NOT_IN_SCHEMA, f"{instant}: {', '.join(lost)}")
    result.schema = text


def _read(storage: Storage, instant: Instant, root: str, findings: Findings) -> CommitMetadata | None:
    path = instant_path(instant, root)
    try:
        # A replacecommit's record begins like a commit's, and the rest is not asked for here.
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
    """When the metadata table was made: what completed before has no commit there."""
    return max(
        (str(each.completion) for each in metadata.completed() if is_bootstrap_instant(each.requested)),
        default="",
    )


def _check_has_metadata_commit(instant: Instant, metadata: Timeline, findings: Findings) -> None:
    found = metadata.find(instant.requested)
    archived = found is None and metadata.is_archived(instant.requested)
    if not archived and (found is None or not found.is_completed):
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
    """`last` is the commit of ours before this one, None where archival took it."""
    is_there = data.is_committed(previous) if last is None else previous == last.instant
    # A ledger that was begun anew on a table with archived commits of ours knows none of them.
    if previous and not is_there:
        found = f", before it comes {last.instant} (epoch {last.epoch})" if last is not None else ""
        findings.add_one(
            Kind.COMMIT_GONE,
            f"{commit.instant} (epoch {commit.epoch}) was committed after {previous}, which is gone{found}",
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
            # A lane that never counted may start anywhere (retention, input.start).
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
