"""What the topics say, decoded from JSON and Arrow, and what of it counts, worked out anew from all entries.

The product's fold goes entry by entry; here both topics are looked at as a whole: which decisions hold, then
which rewinds there were, then which claims and transactions stand, by their offsets.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from tests.simulation.world.checkers import decode
from tests.simulation.world.checkers.layout import Layout
from tests.simulation.world.checkers.model import Change, Row
from tests.simulation.world.checkers.partitioned import lane_of

Entry = dict[str, Any]


class Sent(NamedTuple):
    """A committed message."""

    offset: int
    headers: dict[str, bytes]
    value: bytes | None


Read = Callable[[str, int, int], tuple[list[Sent], int]]
"""(topic, partition, position) -> committed messages from there on, and the position after them."""


class Sharded(NamedTuple):
    """An input topic that is partitioned by lane, so that assigners read it themselves: its name, and the
    sound records of each lane with their offsets.
    """

    topic: str
    records: Mapping[int, Sequence[tuple[int, Change]]]


@dataclass
class Decisions:
    """What holds of the decisions. ``commits``: the epochs that are committed, in order, with their plans."""

    committed: int = 0
    through: int = -1
    planned: Entry | None = None
    decided: Entry | None = None
    attempts: int = 0
    generation: int = 0
    rewinds: list[tuple[int, int]] = field(default_factory=list)
    commits: list[tuple[Entry, Entry]] = field(default_factory=list)
    plans: list[Entry] = field(default_factory=list)
    voided: set[str] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Since:
    """Where a ledger begins: behind this epoch, in this generation, with these positions per lane."""

    epoch: int = 0
    generation: int = 0
    shuffle_next: Mapping[str, int] = field(default_factory=dict)
    assign_next: Mapping[str, int] = field(default_factory=dict)

    def decisions(self) -> Decisions:
        """What holds before any entry."""
        begun = [(self.generation, -1)] if self.generation else []
        return Decisions(committed=self.epoch, generation=self.generation, rewinds=begun)


_FROM_NOTHING: Final = Since()


@dataclass
class Counted:
    """Transactions that count, with their ledger offsets; per lane where it stands."""

    since: Since = _FROM_NOTHING
    shuffled: list[tuple[int, Entry]] = field(default_factory=list)
    tagged: list[tuple[int, Entry]] = field(default_factory=list)
    shuffle_next: dict[str, int] = field(default_factory=dict)
    assign_next: dict[str, int] = field(default_factory=dict)


class Topics:
    """Follows all topics of the table; `follow` reads what is new."""

    def __init__(
        self,
        read: Read,
        table: str,
        lanes: int,
        data_partitions: int,
        ordered: bool,
        layout: Layout,
        sharded: Sharded | None = None,
    ) -> None:
        self._read, self._ordered, self._layout, self._sharded = read, ordered, layout, sharded
        self._lanes = lanes
        roles = {"ledger": 1, "epochs": 1, "keyed": lanes, "index": lanes, "tombstones": lanes,
                 "data": data_partitions, "dead-letter": 1}  # fmt: skip
        self._places = [(f"{table}.{role}", role, n) for role, count in roles.items() for n in range(count)]
        self.keyed_topic = sharded.topic if sharded is not None else f"{table}.keyed"
        self._positions = {(role, n): 0 for _, role, n in self._places}
        self._by_nonce: dict[tuple[str, int, bytes], list[Sent]] = {}
        self.ledger: list[tuple[int, Entry]] = []
        self.decisions: list[tuple[int, Entry]] = []
        self._counted: tuple[tuple[int, int], Decisions, Counted] | None = None
        self.since = _FROM_NOTHING

    def follow(self) -> int:
        """Reads what is new; returns how many entries ledger and decisions have had."""
        for topic, role, partition in self._places:
            at = (role, partition)
            fresh, self._positions[at] = self._read(topic, partition, self._positions[at])
            if role == "ledger":
                self.ledger += [(m.offset, json.loads(m.value or b"")) for m in fresh]
            elif role == "epochs":
                self.decisions += [(m.offset, json.loads(m.value or b"")) for m in fresh]
            else:
                for each in fresh:
                    nonce = each.headers.get("tm-tx", b"")
                    self._by_nonce.setdefault((role, partition, nonce), []).append(each)
        return len(self.ledger) + len(self.decisions)

    def counted(self) -> tuple[Decisions, Counted]:
        """What holds by now."""
        at = (len(self.ledger), len(self.decisions))
        if self._counted is None or self._counted[0] != at:
            decisions = _decisions(self.decisions, self.since)
            self._counted = (at, decisions, _count(self.ledger, decisions.rewinds, self.since))
        return self._counted[1], self._counted[2]

    def cleans(self) -> set[str]:
        """The instants of Tidemark's own cleans of the table."""
        return {entry["instant"] for _, entry in self.decisions if entry.get("kind") == "clean-data"}

    def is_readable(self, entry: Entry) -> bool:
        """Whether the markers of all partitions that the entry names have arrived."""
        return all(self._positions[p["topic"], p["partition"]] > p["last"] for p in entry["produced"])

    def named(self, entry: Entry, role: str) -> list[tuple[int, list[Sent]]]:
        """(partition, messages) that the entry names of one topic."""
        found = []
        for part in entry["produced"]:
            if part["topic"] == role:
                messages = self._by_nonce.get((role, part["partition"], entry["nonce"].encode()), ())
                mine = [m for m in messages if part["first"] <= m.offset <= part["last"]]
                found.append((part["partition"], mine))
        return found

    def dead_letters(self) -> set[tuple[bytes, ...]]:
        """Input positions (topic, partition, offset) of all dead letters."""
        names = ("tm-topic", "tm-partition", "tm-offset")
        letters = self._by_nonce.get(("dead-letter", 0, b""), [])
        return {tuple(each.headers[name] for name in names) for each in letters}

    def changes(self, counted: Counted, lane: int) -> Sequence[tuple[int, Change]]:
        """(position, event) of what an assign lane has to work on, in order."""
        if self._sharded is not None:
            return self._sharded.records[lane]
        rows: list[tuple[int, dict[str, Any]]] = []
        for _, entry in counted.shuffled:
            for partition, messages in self.named(entry, "keyed"):
                if partition == lane:
                    rows += [(m.offset, row) for m in messages for row in decode.batch_rows(m.value or b"")]
        rows.sort(key=lambda each: each[0])
        return [(offset, self._change(row)) for offset, row in rows]

    def _change(self, row: dict[str, Any]) -> Change:
        """The event that a keyed row stands for."""
        if row["_tm_op"] == 1:
            return Change(self.identity(row), None, row["_tm_ordering"] if self._ordered else None)
        path = self._layout.path(row["day"], row.get("zone"))
        identity = self._layout.identity(path, row["_tm_key"])
        return Change(identity, Row(path, row["ts"], row["v"], row.get("note")), row["ts"])

    def identity(self, row: dict[str, Any]) -> str:
        """Which row of the table a row of a topic speaks of."""
        return self._layout.identity(row["_tm_partition"], row["_tm_key"])

    def in_other_lanes(self, counted: Counted) -> list[str]:
        """Rows that lie in another lane than theirs, with a partitioned record index: no number of shards
        tells the lane there. Rows of an identity that are all in the same wrong one do no harm until somebody
        begins who goes by the rule.
        """
        if self._sharded is not None or not self._layout.by_partition:
            return []
        return [
            f"{self.identity(row)} is in lane {lane}"
            for _, entry in counted.shuffled
            for lane, messages in self.named(entry, "keyed")
            for message in messages
            for row in decode.batch_rows(message.value or b"")
            if lane_of(row["_tm_partition"], row["_tm_key"], self._lanes) != lane
        ]

    @property
    def is_sharded(self) -> bool:
        return self._sharded is not None

    def taken(self, counted: Counted) -> dict[str, int]:
        """Per input lane (``topic:partition``) the position up to which it is read."""
        return counted.shuffle_next if self._sharded is None else self._inputs(counted.assign_next)

    def sources(self, counted: Counted, through: int) -> dict[str, int]:
        """Per input lane the position that an epoch commits which ends there in the ledger."""
        keyed = keyed_positions(counted, through)
        return source_positions(counted, keyed, through) if self._sharded is None else self._inputs(keyed)

    def _inputs(self, lanes: Mapping[str, int]) -> dict[str, int]:
        assert self._sharded is not None
        return {f"{self._sharded.topic}:{lane}": position for lane, position in lanes.items()}


def keyed_positions(counted: Counted, through: int) -> dict[str, int]:
    """Per lane the position after the transactions up to a ledger offset."""
    return _positions(counted.since, ((o, entry) for o, entry in counted.tagged if o <= through))


def source_positions(counted: Counted, keyed: dict[str, int], through: int) -> dict[str, int]:
    """Per input lane the position up to which all keyed batches lie before these positions of the assign
    lanes.

    A lane stops at its first transaction that has a batch behind them, or lies behind ``through``.
    """
    positions = dict(counted.since.shuffle_next)
    held: set[str] = set()
    for offset, entry in counted.shuffled:
        lanes = {part["lane"]: part["next"] for part in entry["consumed"]}
        passed = offset <= through and all(
            part["last"] < keyed.get(str(part["partition"]), 0) for part in entry["produced"]
        )
        if not passed or held & lanes.keys():
            held |= lanes.keys()
        else:
            positions.update(lanes)
    return positions


def _decisions(entries: list[tuple[int, Entry]], since: Since) -> Decisions:
    holds = since.decisions()
    term = -1
    for offset, entry in entries:
        kind = entry["type"]
        if kind == "coordinator_claimed":
            term = offset
        elif entry["term"] == term:
            _decide(holds, kind, entry)
    return holds


def _decide(holds: Decisions, kind: str, entry: Entry) -> None:
    planned = holds.planned
    same = planned is not None and (planned["epoch"], planned["attempt"]) == (
        entry.get("epoch"),
        entry.get("attempt"),
    )
    if kind == "epoch_planned":
        follows = (entry["epoch"], entry["attempt"], entry["generation"]) == (
            holds.committed + 1,
            holds.attempts + 1,
            holds.generation,
        )
        if planned is not None or not follows or entry["through"] <= holds.through:
            holds.wrong.append(f"plan out of place: {entry}")
            return
        holds.planned, holds.attempts = entry, entry["attempt"]
        holds.plans.append(entry)
    elif kind == "commit_decided":
        if not same or not _replaces(holds.decided, entry):
            holds.wrong.append(f"decided out of place: {entry}")
            return
        holds.decided = entry
    elif kind == "epoch_committed":
        if not same or planned is None or (planned["instant"] is None) != (holds.decided is None):
            holds.wrong.append(f"committed out of place: {entry}")
            return
        holds.commits.append((planned, entry))
        holds.committed, holds.through = planned["epoch"], planned["through"]
        holds.planned, holds.decided, holds.attempts = None, None, 0
    elif kind == "attempt_voided":
        decided = holds.decided["data_completion"] if holds.decided is not None else ""
        if not same or planned is None or entry.get("undecides", "") != decided:
            holds.wrong.append(f"voided out of place: {entry}")
            return
        holds.voided.add(str(planned["instant"]))
        holds.planned, holds.decided = None, None
    elif kind == "rewound":
        if planned is not None or entry["generation"] != holds.generation + 1 or entry["to"] != holds.through:
            holds.wrong.append(f"rewound out of place: {entry}")
            return
        holds.generation = entry["generation"]
        holds.rewinds.append((entry["generation"], entry["to"]))


def _replaces(held: Entry | None, entry: Entry) -> bool:
    """Whether a decision is the first of its attempt, or names the one whose place it takes."""
    named = entry.get("supersedes", "")
    if held is None:
        return bool(named == "")
    same = (held["statuses_path"], held["statuses_sha256"]) == (
        entry["statuses_path"],
        entry["statuses_sha256"],
    )
    return same and bool(named == held["data_completion"] < entry["metadata_completion"])


def _count(entries: list[tuple[int, Entry]], rewinds: list[tuple[int, int]], since: Since) -> Counted:
    counted = Counted(since, shuffle_next=dict(since.shuffle_next), assign_next=dict(since.assign_next))
    terms: dict[tuple[str, str], int] = {}
    generation = 0
    for offset, entry in entries:
        in_force = max((g for g, to in rewinds if offset > to), default=0)
        if in_force != generation:
            generation = in_force
            # What is committed stays; the lanes go back to it, and nobody holds them.
            counted.assign_next = _positions(since, counted.tagged)
            terms = {lane: term for lane, term in terms.items() if lane[0] == "shuffle"}
        kind = entry["type"]
        if kind == "lanes_claimed":
            if entry["stage"] == "shuffle" or entry["generation"] == generation:
                terms.update({(entry["stage"], lane): offset for lane in entry["lanes"]})
        elif kind == "batch_shuffled":
            if _stands(entry, "shuffle", terms, counted.shuffle_next):
                counted.shuffled.append((offset, entry))
        elif kind == "transaction_tagged":
            stands = entry["generation"] == generation
            if stands and _stands(entry, "assign", terms, counted.assign_next):
                counted.tagged.append((offset, entry))
    return counted


def _stands(entry: Entry, stage: str, terms: dict[tuple[str, str], int], position: dict[str, int]) -> bool:
    for part in entry["consumed"]:
        lane = part["lane"]
        if entry["terms"].get(lane) is None or entry["terms"][lane] != terms.get((stage, lane)):
            return False
        if part["next"] <= part["start"] or part["start"] != position.get(lane, part["start"]):
            return False
    for part in entry["consumed"]:
        position[part["lane"]] = part["next"]
    return True


def _positions(since: Since, tagged: Iterable[tuple[int, Entry]]) -> dict[str, int]:
    after = {part["lane"]: part["next"] for _, entry in tagged for part in entry["consumed"]}
    return {**since.assign_next, **after}
