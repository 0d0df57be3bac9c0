"""Warnings of a status: a kind for programs, and a text for people."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class WarningKind(StrEnum):
    """The kind of a warning. Clients of the admin API rely on the values. No code may read the texts."""

    HALTED = "halted"
    """Nothing is committed any more until somebody acts."""
    STORAGE_REFUSES = "storage-refuses"
    """The table's storage refuses (no space, I/O error, no permission); the coordinator tries again."""
    COMMITS_WAIT = "commits-wait"
    """Commits wait for another writer, which holds the table's lock or clusters file groups that the epoch
    updates.
    """
    KAFKA_SILENT = "kafka-silent"
    """Kafka does not answer: lag and open transactions are unknown."""
    KAFKA_REFUSES = "kafka-refuses"
    """Kafka refuses the coordinator or an assigner what it took before (a right, a login, a topic); it is
    tried again.
    """
    LANES_WITHOUT_OWNER = "lanes-without-owner"
    """No assigner holds these lanes."""
    INPUT_WAITS = "input-waits"
    """Records wait for the schema registry before they can be decoded."""
    NO_WRITER = "no-writer"
    """An epoch is planned, and no writer has asked for work yet."""
    UNFILLED_COLUMNS = "unfilled-columns"
    """The table has columns that `table.schema` lacks; Tidemark writes no values there."""
    STATS_TAKEN_OUT = "stats-taken-out"
    """Another writer switched column or partition stats on; they were taken out of the table again."""
    INDEX_TAKEN_OUT = "index-taken-out"
    """An index that another writer began, or dropped in a restore, was built by nobody; it was taken out."""
    INDEX_MADE_BY_A_WRITE = "index-made-by-a-write"
    """Another writer made a secondary index on its way: rows of that write are not in it."""
    OTHER_STATS = "other-stats"
    """The table keeps column stats of other columns than `table.index.column_stats` names, or none."""
    DROPPED_FIELDS = "dropped-fields"
    """Input records have fields that `table.schema` lacks; the records are taken without them."""
    LANE_STOPPED = "lane-stopped"
    """A lane, or all lanes of a topic, are not read any further until an operator acts."""
    TOPICS_UNWATCHED = "topics-unwatched"
    """The input topics cannot be looked at: new partitions and topics made anew are not noticed."""
    TOPIC_GREW = "topic-grew"
    """An input topic of a table without ordering field has more partitions than before: an old event of a key
    may be applied after a newer one.
    """
    DEAD_LETTERS_EXPIRE = "dead-letters-expire"
    """Kafka soon deletes dead letters."""
    NOT_VERIFIED = "not-verified"
    """The last verification came to no verdict."""
    DIFFERENCES = "differences"
    """A verification found that rows and record index differ."""
    PROCESS_GAVE_UP = "process-gave-up"
    """A process ended for a reason that a restart does not cure."""
    READERS_BLOCKED = "readers-blocked"
    """An open transaction keeps all readers of the ledger from reading on."""
    TIMELINE_LONG = "timeline-long"
    """An active timeline has too many files: nobody compacts and archives the table, or not enough."""
    TIMELINES_UNREADABLE = "timelines-unreadable"
    """The timelines cannot be listed."""
    SERVICE_FAILS = "service-fails"
    """A table service has failed several times in a row; it is tried again, epochs go on."""
    SERVICES_BEHIND = "services-behind"
    """Table services do not keep up with the writing."""
    SERVICE_HELD_BACK = "service-held-back"
    """Something of another writer, or a savepoint, keeps a table service from all of its work."""
    LARGE_SHARDS = "large-shards"
    """Shards of the record index have more entries than is good; `rebuild-index` divides them."""
    SERVICE_ENDED = "service-ended"
    """A service ends again and again after `tidemark run` starts it, or `tidemark run` has given it up."""
    OTHER = "other"
    """A kind that this version does not know."""

    @classmethod
    def _missing_(cls, value: object) -> WarningKind:
        return cls.OTHER


class StatusWarning(msgspec.Struct, frozen=True):
    """``text`` says what is wrong and what to do."""

    kind: WarningKind
    text: str
