"""The failpoints of the coordinator: steps at which a crash test may kill, stop or fail it."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


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
    BEFORE_SERVICE_PLANNED = "before_service_planned"
    AFTER_SERVICE_PLANNED = "after_service_planned"
    BEFORE_SERVICE_DECIDED = "before_service_decided"
    AFTER_SERVICE_DECIDED = "after_service_decided"
    AFTER_SERVICE_REQUESTED = "after_service_requested"
    AFTER_SERVICE_INFLIGHT = "after_service_inflight"
    AFTER_EACH_SERVICE_FILE = "after_each_service_file"
    AFTER_SERVICE_METADATA = "after_service_metadata"
    AFTER_SERVICE_COMPLETED = "after_service_completed"
    AFTER_ROLLBACK_PLANNED = "after_rollback_planned"
    AFTER_ROLLBACK_METADATA = "after_rollback_metadata"
    AFTER_ROLLBACK_FILES = "after_rollback_files"
    AFTER_ROLLBACK_INSTANT = "after_rollback_instant"
    AFTER_ROLLBACK_COMPLETED = "after_rollback_completed"
    AFTER_EACH_ROLLBACK = "after_each_rollback"
    AFTER_TICKETS_REVOKED = "after_tickets_revoked"
    IN_TAKE_BACK = "in_take_back"
    BEFORE_SERVICE_VOIDED = "before_service_voided"
    AFTER_SERVICE_VOIDED = "after_service_voided"
    IN_SWEEP = "in_sweep"
    BEFORE_SERVICE_COMMITTED = "before_service_committed"


OF_A_ROLLBACK: Final = frozenset(
    {
        CoordinatorFailpoint.AFTER_ROLLBACK_PLANNED,
        CoordinatorFailpoint.AFTER_ROLLBACK_METADATA,
        CoordinatorFailpoint.AFTER_ROLLBACK_FILES,
        CoordinatorFailpoint.AFTER_ROLLBACK_INSTANT,
        CoordinatorFailpoint.AFTER_ROLLBACK_COMPLETED,
        CoordinatorFailpoint.AFTER_EACH_ROLLBACK,
    }
)
"""Those that the rollback of a dead write passes, in no other action."""
SERVICE_FAILPOINTS: Final = OF_A_ROLLBACK | frozenset(
    {
        CoordinatorFailpoint.BEFORE_SERVICE_PLANNED,
        CoordinatorFailpoint.AFTER_SERVICE_PLANNED,
        CoordinatorFailpoint.BEFORE_SERVICE_DECIDED,
        CoordinatorFailpoint.AFTER_SERVICE_DECIDED,
        CoordinatorFailpoint.AFTER_SERVICE_REQUESTED,
        CoordinatorFailpoint.AFTER_SERVICE_INFLIGHT,
        CoordinatorFailpoint.AFTER_EACH_SERVICE_FILE,
        CoordinatorFailpoint.AFTER_SERVICE_METADATA,
        CoordinatorFailpoint.AFTER_SERVICE_COMPLETED,
        CoordinatorFailpoint.AFTER_TICKETS_REVOKED,
        CoordinatorFailpoint.IN_TAKE_BACK,
        CoordinatorFailpoint.BEFORE_SERVICE_VOIDED,
        CoordinatorFailpoint.AFTER_SERVICE_VOIDED,
        CoordinatorFailpoint.IN_SWEEP,
        CoordinatorFailpoint.BEFORE_SERVICE_COMMITTED,
    }
)
"""Those that only a table service passes: an epoch alone never reaches them."""
