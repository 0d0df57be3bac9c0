"""A run as text: what the table is like, then one event a line. Any subset of the lines is a script, too.

::

    setup type=mor ordered=yes shards=2 lanes=2 inputs=2 shufflers=1 assigners=2 ...
    feed up k1 d0 5              an upsert: key, table partition, ordering value
    feed del k1 7                a delete by the delete field; `feed null k1`: by a null value
    round                        every process takes one step, in the order of the seats
    step assigner-0              one seat takes a step; whatever died there is started again
    crash coordinator 14         the seat's process is killed at the 14th place from now (see `process`)
    freeze writer 2 publish      … is stopped at the 2nd that has this word in its name; thaw writer: goes on
    replace coordinator          another process takes the seat, the old one goes on as a zombie
    zombie coordinator           the zombies of the seat take a step

All verbs are listed in `VERBS`, with what their words mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

Event = tuple[str, ...]

VERBS: Final[Mapping[str, str]] = {
    "feed": "up KEY DAY AT | del KEY AT [DAY] | null KEY | bad: one input record; with a partitioned record "
    "index a delete that names no partition is a dead letter; long KEY: one that is too long for the "
    "secondary index, where there is one; lost KEY [N]: a record batch of N records that nobody can read; "
    "deadly KEY [N [decoded|fetched]]: one that ends the process that decodes its first record, or that "
    "fetches it",
    "skip": "an operator moves each lane that stands still past what cannot be read",
    "grow": "the user's schema gets a field, all services start anew with it, and records have it then",
    "round": "every seat takes a step",
    "step": "SEAT: its process takes a step",
    "wait": "MS: time passes",
    "jump": "MS: the wall clock jumps (negative: back)",
    "crash": "SEAT N [WORD]: killed at the nth place from now, of those with the word in their names",
    "kill": "SEAT: killed between two steps",
    "freeze": "SEAT N [WORD]: stopped at the nth place from now",
    "thaw": "SEAT: the oldest frozen process of the seat goes on",
    "fail-before": "SEAT N [WORD]: the nth call from now that writes to storage fails without effect",
    "fail-after": "SEAT N [WORD]: … fails after its effect",
    "replace": "SEAT: a new process takes the seat, the old one becomes a zombie",
    "zombie": "SEAT: the zombies of the seat take a step",
    "leave": "SEAT: its process ends in order",
    "lose-disk": "SEAT: its local disk is empty from now on",
    "machine-crash": "N: all processes die; deletions of files and the N newest cache batches are lost",
    "end-fault": "ID FAULT: of the next end of a transaction of ID",
    "late-ends": "delayed ends of transactions arrive",
    "lose-message": "TOPIC: a message is not stored",
    "lose-ack": "TOPIC: a message is stored, its producer does not learn it",
    "markers": "MS: markers of transactions take up to so long",
    "broker": "down | up",
    "starts-back": "N [TOPIC …]: the broker was killed, and these topics (all of ours) begin where they did "
    "N deletions ago",
    "call-fault": "SEAT METHOD lost|answer|late|twice: of the next such call of the seat",
    "late-calls": "delayed calls arrive",
    "speculate": "the writer runs the tasks of its next job twice",
    "fail-job": "the writer's next job fails for good, with half of its files made",
    "rewind-wish": "an assigner asks for a rewind",
    "hurry": "the coordinator plans as soon as something counts",
    "lose-lock": "somebody deletes the table's lock by hand",
    "foreign": "KIND [WORD …]: another engine does it, if the table's lock is free (see `FOREIGN`)",
    "index": "create | repair | drop [N [WORD]]: an operator's `tidemark index` command, killed at its nth "
    "place; not over a store without folders, nor while another engine builds an index",
    "reader": "begin | end: a reader lists the data timeline, later the rest",
}


FOREIGN: Final[Mapping[str, str]] = {
    "clock": "MS: its clock is so far ahead of ours from here on (negative: behind)",
    "empty": "a commit of nothing",
    "insert": "[DAY]: of a key k0 to k5 that is not there, into a new file group",
    "insert-into": "[DAY]: … into a file group without log files, whose base file is written anew",
    "update": "KEY",
    "delete": "KEY: whatever its ordering value",
    "move": "KEY DAY: to another partition",
    "column": "KEY: an update with a column that the table did not have",
    "begin": "insert|fresh|update|delete|move …: leaves such a write in flight; fresh: of a key f1, f2 …",
    "finish": "what is in flight is committed, unless it lost against another commit",
    "die": "the writer of what is in flight dies: its heartbeat ends",
    "half": "[DAY]: an insert that dies between the metadata table's commit and its own, with the lock",
    "undo": "the dead one's lock is removed, pending writes without a heartbeat are rolled back",
    "rollback": "the oldest pending write of anybody is rolled back, whatever its heartbeat says",
    "rollback-own": "its own newest commit, if nothing came after it",
    "savepoint": "keeps the newest commit",
    "delete-savepoints": "keeps nothing any more",
    "restore": "to the newest savepoint; unless all since then was its own it first makes one, and commits "
    "behind it",
    "half-begun": "[DAY]: an insert into a partition that has no file groups in a partitioned record index; "
    "it dies behind the first files of these, with the lock",
    "compact": "plan-compaction and run-compaction at once",
    "plan-compaction": "of all file groups with log files",
    "run-compaction": "carries the planned one out",
    "fail-compaction": "[files|metadata]: carries the planned one out, or plans it, and dies: with half of "
    "the base files, the last one cut, or between the metadata table's commit and its own, with the lock",
    "cluster": "[DAY]: plan-clustering and run-clustering at once",
    "plan-clustering": "[DAY]: of all file groups of the partition",
    "run-clustering": "carries the planned one out, unless a commit changed one of its file groups",
    "fail-clustering": "[DAY] [files|metadata]: … of the partition",
    "rollback-service": "compaction|clustering|index: what a dead executor left goes, the plan stays",
    "overwrite": "[DAY]: INSERT_OVERWRITE of the partition with one row",
    "drop": "[DAY]: DELETE_PARTITION",
    "clean": "commits N | versions N | time S: by the policies of Hudi's clean; S seconds",
    "plan-clean": "…: says what is to be deleted",
    "run-clean": "deletes what was planned",
    "archive": "[N]: all but the N newest writes (1), as far as Hudi's limits let it",
    "compact-index": "[clean]: compacts the metadata table, as planned if it was; deletes what it replaced",
    "plan-compact-index": "plans that; whoever of them writes the metadata table next carries it out",
    "stats": "off | columns | more | anew | partition | some: drops the column stats, indexes others, or "
    "one more, makes them anew, adds partition stats, or has in its writes stats of some of their columns "
    "alone",
    "build": "begin | next | finish | die: a secondary index, by the steps of CREATE INDEX; begin "
    "takes the first one, finish all that are left",
    "leave-build": "NAME: names this index as being built, and dies",
    "fail-compact-index": "carries it out and dies with half of the base files, the last one cut",
}
"""What the other engine can do; it leaves out what Hudi would refuse, or lose by its clock."""


@dataclass(frozen=True)
class Setup:
    """The table and its surroundings. ``trim``: epochs between two trimmings, 0 for never; ``tiny_cache``: no
    room in RocksDB; ``interval_ms``: between two plans; ``batch_bytes``, ``cache_bytes`` (memory for an
    assigner's caches together) and ``block_bytes`` (of HFiles, whoever writes them): 0 for the usual ones.

    What comes behind ``tiny_cache`` makes richer worlds than the usual one: `input.partitioning`, `topics`
    and `format`; what `checkers.layout` says of ``partition`` and ``keys``; how long tombstones live.
    ``start``: `input.start`. ``tagged`` and ``shuffled`` (transactions) and ``tagged_bytes``: limits of what
    is not committed, 0 for the usual ones; with others a script waits for a second between two rounds.
    ``store``: objects for a table without folders and renames. ``services``: Tidemark compacts, cleans and
    archives, as often as it can; ``kinds``: of these sections of `table_services:` alone
    (``compact_data+clean``), all when empty. ``stats``, ``secondary``: the table keeps column stats, and a
    secondary index of ``ts``, from its first commits on (`switched_on`); ``nullable``: it has a column `note`
    that is null in some rows, the secondary index is of that one, and the stats have it, too. ``index``:
    `table.index.kind`; where it is partitioned, each partition gets ``shards`` groups; ``units``: so many
    parts of it are open in an assigner, 0 for the usual number.
    """

    type: str = "mor"
    ordered: bool = True
    shards: int = 2
    lanes: int = 2
    inputs: int = 2
    shufflers: int = 1
    assigners: int = 2
    records: int = 20
    uncommitted: int = 1_000
    interval_ms: int = 50
    trim: int = 0
    tiny_cache: bool = False
    partitioning: str = "any"
    partition: str = "day"
    keys: int = 1
    topics: int = 1
    format: str = "json"
    ttl_ms: int = 86_400_000
    batch_bytes: int = 0
    cache_bytes: int = 0
    block_bytes: int = 0
    ids: int = 1
    start: str = "earliest"
    tagged: int = 0
    tagged_bytes: int = 0
    shuffled: int = 0
    store: str = "folders"
    services: bool = False
    kinds: str = ""
    stats: bool = False
    secondary: bool = False
    index: str = "global"
    units: int = 0
    nullable: bool = False

    @property
    def by_partition(self) -> bool:
        """The record index is divided by partition."""
        return self.index == "partitioned"

    @property
    def is_sharded(self) -> bool:
        """Producers use the lane as the partition: there is no shuffle stage."""
        return self.partitioning == "shard"

    def line(self) -> str:
        """As the first line of a script."""
        words = [f"{name}={_text(getattr(self, name))}" for name in self.__dataclass_fields__]
        return f"setup {' '.join(words)}"

    @classmethod
    def parse(cls, words: Iterable[str]) -> Setup:
        """Raises ValueError for a word that is none of ours."""
        found: dict[str, object] = {}
        for word in words:
            name, _, value = word.partition("=")
            if name not in cls.__dataclass_fields__:
                raise ValueError(f"setup has no {name!r}; it has {', '.join(cls.__dataclass_fields__)}")
            default = cls.__dataclass_fields__[name].default
            if isinstance(default, bool):
                found[name] = value == "yes"
            else:
                found[name] = int(value) if isinstance(default, int) else value
        return cls(**found)  # type: ignore[arg-type]


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


@dataclass(frozen=True)
class Script:
    """What a run does. ``seed``: where it came from, -1 for a text."""

    setup: Setup = field(default_factory=Setup)
    events: tuple[Event, ...] = ()
    seed: int = -1

    def text(self) -> str:
        """One event a line; `parse` reads it."""
        return "\n".join([self.setup.line(), *(" ".join(event) for event in self.events)]) + "\n"

    def of(self, events: Iterable[Event]) -> Script:
        """The same surroundings with other events."""
        return Script(self.setup, tuple(events), self.seed)


def parse(text: str) -> Script:
    """Reads `Script.text`; empty lines and those that start with ``#`` are passed over. Raises ValueError."""
    setup, events = Setup(), []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if words[0] == "setup":
            setup = Setup.parse(words[1:])
        elif words[0] not in VERBS:
            raise ValueError(f"line {number}: {words[0]!r} is none of {', '.join(VERBS)}")
        else:
            events.append(tuple(words))
    return Script(setup, tuple(events))
