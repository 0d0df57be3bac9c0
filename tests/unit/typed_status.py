"""Statuses from the documents that tests write down."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tidemark.table_status.status import Status, VerificationState
from tidemark.table_status.warnings import StatusWarning, WarningKind

COUNTS = {"input": 0, "inserts": 0, "updates": 0, "deletes": 0, "moves": 0, "superseded": 0, "no_ops": 0}
IDLE: dict[str, Any] = {
    "table": "flights",
    "path": "/warehouse/flights",
    "coordinator": {
        "term": 1,
        "doing": "Wait",
        "waiting_for": "",
        "halted": None,
        "stopped": False,
        "blocked_epoch": None,
        "trouble": None,
        "generation": 0,
        "rewinds": [],
    },
    "services": {"shuffle": [], "assign": []},
    "writer": {"asked": 1, "process": "writer-1"},
    "gave_up": [],
    "stopped_lanes": [],
    "paused": {"paused": False, "reason": ""},
    "last_commit": {"epoch": 0, "instant": None, "completion": None, "detail": None},
    "in_flight": {
        "epoch": None,
        "attempt": None,
        "instant": None,
        "age_ms": None,
        "not_reported": [],
        "transactions": 0,
        "bytes": 0,
    },
    "lag": {"input_offsets_not_shuffled": 0, "input_offsets_not_committed": 0},
    "records": {"shuffled": 0, "dead_letters": 0, "committed": COUNTS, "uncommitted": COUNTS},
    "file_groups": {"file_groups": 0.0, "bytes": 0.0, "target_bytes": float(120 << 20)},
    "verification": None,
    "warnings": [],
}
"""A table on which nothing happens."""


def typed_status(document: Mapping[str, Any]) -> Status:
    """Of a document whose warnings are texts, of no kind, or `StatusWarning`s."""
    warnings = [
        each if isinstance(each, StatusWarning) else StatusWarning(WarningKind.OTHER, each)
        for each in document["warnings"]
    ]
    return msgspec.convert({**document, "warnings": msgspec.to_builtins(warnings)}, Status)


def typed_verification(document: Mapping[str, Any] | None) -> VerificationState | None:
    """What a test need not say has a value of no meaning."""
    if document is None:
        return None
    last = document["last"]
    filled = {"commits_since": 0, **document, "last": last and {"ended_ms": 0, **last}}
    return msgspec.convert(filled, VerificationState)
