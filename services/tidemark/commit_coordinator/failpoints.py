"""The failpoints of the coordinator: steps at which a crash test may kill, stop or fail it."""

from __future__ import annotations

from enum import StrEnum


class CoordinatorFailpoint(StrEnum):
    """Each is named by the step that comes just before or after it; `Context.hit` is called there."""

    BEFORE_EPOCH_PLANNED = "before_epoch_planned"
    AFTER_EPOCH_PLANNED = "after_epoch_planned"
    AFTER_REQUESTED = "after_requested"
    AFTER_INFLIGHT = "after_inflight"
    BEFORE_COMMIT_DECIDED = "before_commit_decided"
    AFTER_COMMIT_DECIDED = "after_commit_decided"
    BEFORE_METADATA_COMPLETED = "before_metadata_completed"
    AFTER_METADATA_COMMIT = "after_metadata_commit"
    AFTER_DATA_COMMIT = "after_data_commit"
    BEFORE_EPOCH_COMMITTED = "before_epoch_committed"
    AFTER_EPOCH_COMMITTED = "after_epoch_committed"
    AFTER_VOIDED = "after_voided"
    AFTER_ROLLED_BACK = "after_rolled_back"
