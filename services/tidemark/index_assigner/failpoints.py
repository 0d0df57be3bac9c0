"""The protocol steps of shufflers and assigners at which a crash test may kill, freeze or fail them."""

from __future__ import annotations

from enum import StrEnum

from tidemark.epoch_protocol.entries import Stage


class AssignerFailpoint(StrEnum):
    """Each is hit *before* its step; `*_committed` is hit after the transaction has ended."""

    SHUFFLE_CLAIM = "shuffle_claim"
    SHUFFLE_BEGUN = "shuffle_begun"
    SHUFFLE_BATCHES = "shuffle_batches"
    SHUFFLE_ENTRY = "shuffle_entry"
    SHUFFLE_COMMIT = "shuffle_commit"
    SHUFFLE_COMMITTED = "shuffle_committed"
    ASSIGN_CLAIM = "assign_claim"
    ASSIGN_BEGUN = "assign_begun"
    ASSIGN_BATCHES = "assign_batches"
    ASSIGN_ENTRY = "assign_entry"
    ASSIGN_COMMIT = "assign_commit"
    ASSIGN_COMMITTED = "assign_committed"


def failpoint_of(stage: Stage, step: str) -> AssignerFailpoint:
    """The failpoint of a step that `LedgerTransaction.reached` names, or of ``claim``."""
    return AssignerFailpoint(f"{stage.value}_{step}")
