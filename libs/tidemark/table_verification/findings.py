"""The differences that a verification found: counts by kind, and the first examples of each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from typing import Final

EXAMPLES_MAX: Final = 20


class Kind(Enum):
    """A kind of difference. Scripts rely on the values; `MEANING` has the texts for people."""

    KEY_TWICE = "key-twice"
    ROW_WITHOUT_ENTRY = "row-without-entry"
    ENTRY_WITHOUT_ROW = "entry-without-row"
    ENTRY_ELSEWHERE = "entry-elsewhere"
    ENTRY_TWICE = "entry-twice"
    ENTRY_IN_WRONG_SHARD = "entry-in-wrong-shard"
    INDEX_GROUP_HIDDEN = "index-group-hidden"
    ROW_IN_WRONG_PARTITION = "row-in-wrong-partition"
    COLUMN_NOT_IN_SCHEMA = "column-not-in-schema"
    COLUMN_STATS_MISSING = "column-stats-missing"
    COLUMN_STATS_WRONG = "column-stats-wrong"
    SECONDARY_ENTRY_MISSING = "secondary-entry-missing"
    SECONDARY_ENTRY_EXTRA = "secondary-entry-extra"
    SECONDARY_INDEX_WRONG = "secondary-index-wrong"
    UNREADABLE = "unreadable"
    FILE_NOT_LISTED = "file-not-listed"
    FILE_MISSING = "file-missing"
    FILE_SIZE = "file-size"
    PARTITION_NOT_LISTED = "partition-not-listed"
    COMMITTED_FILE_GONE = "committed-file-gone"
    ORPHAN_FILE = "orphan-file"
    COMPACTION_PLAN = "compaction-plan"
    ARCHIVED_LOG = "archived-log"
    COMPLETED_TWICE = "completed-twice"
    INSTANT_FILES = "instant-files"
    COMPLETION_ORDER = "completion-order"
    METADATA_COMMIT_ALONE = "metadata-commit-alone"
    COMMIT_GONE = "commit-gone"
    EPOCH_ORDER = "epoch-order"
    OFFSETS_GAP = "offsets-gap"
    COMMITS_DIFFER = "commits-differ"


MEANING: Final = {
    Kind.KEY_TWICE: "live keys in more than one row",
    Kind.ROW_WITHOUT_ENTRY: "rows whose key the record index does not have",
    Kind.ENTRY_WITHOUT_ROW: "index entries of keys that have no row",
    Kind.ENTRY_ELSEWHERE: "index entries that name another place than the row's",
    Kind.ENTRY_TWICE: "keys with more than one index entry",
    Kind.ENTRY_IN_WRONG_SHARD: "index entries in a shard that their key does not hash to",
    Kind.INDEX_GROUP_HIDDEN: "file groups of the record index whose entries Hudi does not see",
    Kind.ROW_IN_WRONG_PARTITION: "rows that name another partition than their folder",
    Kind.COLUMN_NOT_IN_SCHEMA: "base files and commits with columns that the table's schema lost",
    Kind.COLUMN_STATS_MISSING: "files that lack a record of the column stats",
    Kind.COLUMN_STATS_WRONG: "column stats by which readers leave out rows, or fail",
    Kind.SECONDARY_ENTRY_MISSING: "rows that a secondary index does not have, so that readers lose them",
    Kind.SECONDARY_ENTRY_EXTRA: "entries of a secondary index that no row has",
    Kind.SECONDARY_INDEX_WRONG: "secondary indexes that cannot be read, or have entries in a wrong group",
    Kind.UNREADABLE: "file slices, shards or commits that cannot be read",
    Kind.FILE_NOT_LISTED: "committed files in the storage that the metadata table does not list",
    Kind.FILE_MISSING: "files that the metadata table lists and the storage does not have",
    Kind.FILE_SIZE: "files whose size is not the listed one",
    Kind.PARTITION_NOT_LISTED: "partitions with files that the metadata table does not list",
    Kind.COMMITTED_FILE_GONE: "files that a commit wrote, that no reader can do without, and that are gone",
    Kind.ORPHAN_FILE: "files of writes that are neither committed nor pending",
    Kind.COMPACTION_PLAN: "log files that a compaction left out, or should have left out",
    Kind.ARCHIVED_LOG: "log files in current slices of the metadata table whose instant is archived",
    Kind.COMPLETED_TWICE: "instants with two completed files",
    Kind.INSTANT_FILES: "completed instants without their requested or inflight file",
    Kind.COMPLETION_ORDER: "completion times that are out of order",
    Kind.METADATA_COMMIT_ALONE: "commits of the metadata table whose data instant does not exist",
    Kind.COMMIT_GONE: "commits whose predecessor is not on the timeline any more",
    Kind.EPOCH_ORDER: "commits whose epoch does not follow the one before",
    Kind.OFFSETS_GAP: "commits whose input positions do not continue those of the epoch before",
    Kind.COMMITS_DIFFER: "commits whose metadata table commit is missing or says something else",
}
assert MEANING.keys() == set(Kind)


@dataclass
class Findings:
    """Counts by kind, with at most `EXAMPLES_MAX` examples of each."""

    counts: dict[Kind, int] = field(default_factory=dict)
    examples: dict[Kind, list[str]] = field(default_factory=dict)

    def add(self, kind: Kind, count: int, examples: Iterable[str]) -> None:
        """Adds ``count`` differences. Of ``examples`` only as many are read as may still be kept."""
        if not count:
            return
        self.counts[kind] = self.counts.get(kind, 0) + count
        shown = self.examples.setdefault(kind, [])
        shown.extend(islice(examples, EXAMPLES_MAX - len(shown)))

    def add_one(self, kind: Kind, example: str) -> None:
        """Adds one difference."""
        self.add(kind, 1, [example])

    def shares_an_example(self, other: Findings) -> bool:
        """Whether both have at least one difference in common."""
        return any(set(shown) & set(other.examples.get(kind, ())) for kind, shown in self.examples.items())
