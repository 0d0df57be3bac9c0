"""Entries of the decisions topic about service actions: compaction, clean, archival and rollback beside the
epochs. Their wire form is that of `entries`, their order `service_status.SERVICE_STEPS`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

import msgspec


class ServiceKind(StrEnum):
    """What a service action does. ``index`` is the metadata table, ``data`` the table itself; an archive
    action takes one of the two timelines.
    """

    COMPACT_INDEX = "compact-index"
    COMPACT_DATA = "compact-data"
    CLEAN_DATA = "clean-data"
    CLEAN_INDEX = "clean-index"
    ARCHIVE = "archive"
    ROLLBACK = "rollback"


class ServiceOutcome(StrEnum):
    """``BY_OTHER``: another engine completed the action's instant at a time of its own."""

    DONE = "done"
    BY_OTHER = "by_other"


class ServicePlanned(msgspec.Struct, frozen=True, tag="service_planned"):
    """A service action begins. Nothing of it is on the table before it is decided.

    ``service`` counts up from 1 over all kinds. ``instant`` is the requested time of what it makes.
    ``plan_path`` (below the table's base) and ``plan_sha256`` address the stored plan. ``planned_ms`` is wall
    clock, for people only.
    """

    term: int
    service: int
    kind: ServiceKind
    instant: str
    plan_path: str
    plan_sha256: str
    planned_ms: int


class ServiceDecided(msgspec.Struct, frozen=True, tag="service_decided"):
    """The point of no return: from here on the action is a pure function of the decisions.

    ``statuses_path`` and ``statuses_sha256`` address the stored outcomes of the tasks, and the plan as it
    still held. Kinds that complete an instant on one timeline only do not use the other completion time.
    """

    term: int
    service: int
    metadata_completion: str
    data_completion: str
    statuses_path: str
    statuses_sha256: str
    decided_ms: int


class ServiceCommitted(msgspec.Struct, frozen=True, tag="service_committed"):
    """The action is in the table, and what it made useless is deleted. ``completion`` is the completion time
    of its instant, "" if its kind completes none.
    """

    term: int
    service: int
    instant: str
    completion: str
    outcome: ServiceOutcome
    committed_ms: int


class ServiceVoided(msgspec.Struct, frozen=True, tag="service_voided"):
    """The action will never commit.

    When it was decided, the entry takes the decision back, too: ``undecides`` is the data completion time of
    that decision, else "". This is allowed only while nothing is completed under it, as for `AttemptVoided`.
    """

    term: int
    service: int
    reason: str
    undecides: str = ""


class ServicesPaused(msgspec.Struct, frozen=True, tag="services_paused"):
    """No table service is planned any more (``paused``), or they are again. An open action goes on."""

    term: int
    paused: bool
    reason: str


ServiceStep: TypeAlias = ServicePlanned | ServiceDecided | ServiceCommitted | ServiceVoided
