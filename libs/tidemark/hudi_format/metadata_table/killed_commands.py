"""Commands that change an index complete their instants before they make the files of the states before, so
that a killed one leaves no pending instant. It may leave a completed one without these files, which archival
reads: here whoever comes next finds and adds them.
"""

from __future__ import annotations

from tidemark.hudi_format.commit.instants import create_inflight, create_requested
from tidemark.hudi_format.model import is_bootstrap_instant
from tidemark.hudi_format.publication.unfenced import Unfenced
from tidemark.hudi_format.storage.base import Storage, join_path
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, Action, Instant, State, Timeline, load_timeline


def commits_without_inflight(storage: Storage, root: str) -> list[Instant]:
    """The completed commits that lack their inflight file, but for those that are being archived."""
    timeline = load_timeline(storage, root)
    names = set(storage.names(join_path(root, "timeline")))
    commits = timeline.completed(Action.COMMIT, Action.DELTA_COMMIT)
    lacking = [commit for commit in commits if _inflight(commit).file_name not in names]
    # Archival deletes an instant's files one by one, once the archive has it.
    return [commit for commit in lacking if not _has_archived(timeline, commit.requested)]


def builds_without_inflight(storage: Storage) -> list[Instant]:
    """Those of them that built an index."""
    commits = commits_without_inflight(storage, METADATA_TABLE_ROOT)
    return [commit for commit in commits if is_bootstrap_instant(commit.requested)]


def end_killed_builds(storage: Storage) -> None:
    """Makes the instants of killed builds whole. Hold the lock. Repeatable."""
    for build in builds_without_inflight(storage):
        add_states(storage, build, METADATA_TABLE_ROOT)


def add_states(storage: Storage, completed: Instant, root: str) -> None:
    """Makes the files of the states before, the inflight one last."""
    by = Unfenced(storage)
    requested = create_requested(by, completed.requested, completed.action, root=root)
    create_inflight(by, requested, root=root)


def _inflight(completed: Instant) -> Instant:
    return Instant(completed.requested, completed.action, State.INFLIGHT)


def _has_archived(timeline: Timeline, instant: str) -> bool:
    return timeline.archive is not None and timeline.archive.completion_time(instant) is not None
