"""The active timeline's commits of ours against each other: epochs in order, positions without a gap, and
the metadata table's commit of the same instant saying the same.

An epoch without rows has no commit, so epoch numbers may jump; positions must continue exactly between
consecutive epochs, and never go back over a jump. A ledger that was begun anew starts at keyed position 0.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from hudi_format.commit.instants import instant_path
from hudi_format.storage.base import Storage
from hudi_format.timeline import METADATA_TABLE_ROOT, Action, Instant, Timeline
from hudi_format.timeline.avro_records import decode_commit_metadata
from tidemark_cli.verify.findings import Findings, Kind

_PREFIX: Final = "tidemark."
_EPOCH: Final = "tidemark.epoch"
_POSITIONS: Final = ("tidemark.keyed_offsets", "tidemark.source_offsets")


@dataclass
class CommitCounts:
    """What was looked at. `without_rows`: epochs between ours that have no commit; `ledgers`: starts anew."""

    ours: int = 0
    foreign: int = 0
    without_rows: int = 0
    ledgers: int = 0
    first_epoch: int | None = None
    last_epoch: int | None = None


@dataclass(frozen=True)
class _Commit:
    instant: str
    epoch: int
    ranges: Mapping[str, Mapping[str, tuple[int, int]]]


def check_commits(storage: Storage, data: Timeline, metadata: Timeline, findings: Findings) -> CommitCounts:
    """Adds what is wrong to `findings`."""
    counts = CommitCounts()
    previous: _Commit | None = None
    for instant in sorted(
        data.completed(Action.COMMIT, Action.DELTA_COMMIT), key=lambda each: str(each.completion)
    ):
        extra = _ours(storage, instant)
        if not extra:
            counts.foreign += 1
            continue
        counts.ours += 1
        _check_metadata_commit(storage, metadata, instant, extra, findings)
        commit = _parse(instant.requested, extra, findings)
        if commit is None:
            continue
        if previous is not None:
            _check_pair(previous, commit, counts, findings)
        counts.first_epoch = counts.first_epoch or commit.epoch
        counts.last_epoch = commit.epoch
        previous = commit
    return counts


def _ours(storage: Storage, instant: Instant, root: str = ".hoodie") -> dict[str, str]:
    path = instant_path(instant, root)
    extra = decode_commit_metadata(storage.read(path), path).extra_metadata
    return {key: value for key, value in extra.items() if key.startswith(_PREFIX)}


def _check_metadata_commit(
    storage: Storage, metadata: Timeline, instant: Instant, extra: Mapping[str, str], findings: Findings
) -> None:
    found = metadata.find(instant.requested)
    if found is None and metadata.is_archived(instant.requested):
        return
    if found is None or not found.is_completed:
        findings.add_one(
            Kind.COMMITS_DIFFER, f"{instant.requested}: the metadata table has no commit of this instant"
        )
        return
    other = _ours(storage, found, METADATA_TABLE_ROOT)
    differing = sorted(key for key in extra.keys() | other.keys() if extra.get(key) != other.get(key))
    if differing:
        findings.add_one(Kind.COMMITS_DIFFER, f"{instant.requested}: {', '.join(differing)}")


def _parse(instant: str, extra: Mapping[str, str], findings: Findings) -> _Commit | None:
    try:
        ranges = {key: dict(_lanes(json.loads(extra[key]))) for key in _POSITIONS}
        return _Commit(instant, int(extra[_EPOCH]), ranges)
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        findings.add_one(Kind.COMMITS_DIFFER, f"{instant}: its tidemark.* metadata is unreadable: {error!r}")
        return None


def _lanes(document: Any) -> Iterator[tuple[str, tuple[int, int]]]:
    for topic, partitions in document.items():
        for partition, (first, following) in partitions.items():
            yield f"{topic}:{partition}", (int(first), int(following))


def _check_pair(before: _Commit, after: _Commit, counts: CommitCounts, findings: Findings) -> None:
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
                    f"[{first}, {following}), epoch {before.epoch} ended at {reached}",
                )


def _is_new_ledger(before: _Commit, after: _Commit) -> bool:
    reached = [following for _, following in before.ranges[_POSITIONS[0]].values()]
    starts = [first for first, _ in after.ranges[_POSITIONS[0]].values()]
    return max(reached, default=0) > 0 and bool(starts) and max(starts) == 0
