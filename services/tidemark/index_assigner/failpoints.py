"""The protocol steps of shufflers and assigners at which a crash test may kill, freeze or fail them."""

from __future__ import annotations

from enum import StrEnum

from tidemark.epoch_protocol.entries import Stage
from tidemark.stream_runtime.kafka.ledger_transaction import LedgerStep


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


def claim_failpoint(stage: Stage) -> AssignerFailpoint:
    """The failpoint before a slot of the stage claims lanes."""
    return AssignerFailpoint(f"{stage.value}_claim")


def failpoint_of(stage: Stage, step: LedgerStep) -> AssignerFailpoint:
    """The failpoint at a step of the stage's transactions."""
    return AssignerFailpoint(f"{stage.value}_{step.value}")
