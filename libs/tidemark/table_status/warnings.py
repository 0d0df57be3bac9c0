"""What somebody has to look at: which kind of thing, for programs, and in words, for people."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class WarningKind(StrEnum):
    """The values are a contract with clients of the admin API; the texts are not, and no code reads them."""

    HALTED = "halted"
    """Nothing is committed any more until somebody acts."""
    STORAGE_REFUSES = "storage-refuses"
    COMMITS_WAIT = "commits-wait"
    """For another writer: it holds the table's lock, or clusters file groups that the epoch updates."""
    KAFKA_SILENT = "kafka-silent"
    LANES_WITHOUT_OWNER = "lanes-without-owner"
    INPUT_WAITS = "input-waits"
    """Records wait for the schema registry before they can be decoded."""
    NO_WRITER = "no-writer"
    UNFILLED_COLUMNS = "unfilled-columns"
    DROPPED_FIELDS = "dropped-fields"
    LANE_STOPPED = "lane-stopped"
    TOPIC_GREW = "topic-grew"
    DEAD_LETTERS_EXPIRE = "dead-letters-expire"
    NOT_VERIFIED = "not-verified"
    """The last verification came to no verdict."""
    DIFFERENCES = "differences"
    """A verification found rows and record index to disagree."""
    PROCESS_GAVE_UP = "process-gave-up"
    READERS_BLOCKED = "readers-blocked"
    """An open transaction holds all readers of the ledger back."""
    TIMELINE_LONG = "timeline-long"
    TIMELINES_UNREADABLE = "timelines-unreadable"
    SERVICE_ENDED = "service-ended"
    """`tidemark run` starts a service again and again, or no longer."""
    OTHER = "other"
    """One that this version does not know."""

    @classmethod
    def _missing_(cls, value: object) -> WarningKind:
        return cls.OTHER


class StatusWarning(msgspec.Struct, frozen=True):
    """``text`` says what is wrong and what to do."""

    kind: WarningKind
    text: str
