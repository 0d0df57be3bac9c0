"""G7: no attempt is given up, nothing is tagged anew and no process ends without a cause of its own.

The world says what it did to whom, and when; the decisions say what came of it. A cause excuses what it can
lead to, and nothing else:

* An attempt is void for what happened between its plan and its end: another engine completed something on
  the data timeline or changed the table's indexes, another coordinator claimed the table (the former one's
  staging folder is gone), a job of the writer failed for good, or the broker was away. A pending clustering
  excuses one attempt of an epoch in each term, and one more whose rows are tagged anew: what is only inserted
  goes elsewhere then. So does another engine's write that began a partition of a partitioned record index and
  is pending.
* A rewind is due for what another engine completed, compactions aside (an indexing, too: it may be of the
  record index), and no rewind or plan has taken into
  account; for a compaction that was archived before anybody looked (the history calls it a commit); for such
  a clustering; for a wish, once.
* A process ends because another coordinator claimed the table (a coordinator), because the broker was down
  since it began, or because of a fault that was aimed at it.

Example: an attempt that is void although nothing but an assigner's crash happened while it was open.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Final

from tests.hudi_rules.timeline import parse_name, parse_timeline

_MOVES: Final = frozenset({"commit", "deltacommit", "replacecommit", "rollback", "restore", "indexing"})
_ENDS_ATTEMPTS: Final = _MOVES | {"clean"}
_AWAY: Final = "the broker was away"
_WRITES: Final = ("commit", "deltacommit")


@dataclass(frozen=True)
class _Begin:
    """What there had been when a process began: claims, outages of the broker, faults aimed at its kind."""

    claims: int
    outages: int
    faults: int


@dataclass(frozen=True)
class _Void:
    """An attempt that was given up, and what then was a cause. ``clusterings``: those that were pending, and
    other engines' writes that had begun a partition of the record index.
    """

    offset: int
    entry: dict[str, Any]
    has_cause: bool
    clusterings: frozenset[str]


class NeedlessWork:
    """``say(guarantee, text)`` is told of each violation; ``names()``: files of the data timeline now;
    ``generation``: with which the ledger begins; ``index_instants()``: of files of a partitioned
    record index.
    """

    def __init__(
        self,
        say: Callable[[str, str], None],
        names: Callable[[], Collection[str]],
        generation: int = 0,
        index_instants: Callable[[], set[str]] = set,
    ) -> None:
        self._say, self._names, self._index_instants = say, names, index_instants
        self._ours = set[str | None]()
        self._term = -1
        self._claims, self._generation = 0, generation
        self._open: tuple[int, int] | None = None
        self._void: _Void | None = None
        self._wished = self._rewinds = False
        self._causes: set[str] = set()
        self._unhandled: set[str] = set()
        self._compactions: set[str] = set()
        self._excused: set[tuple[str, int, int, bool]] = set()
        self._outages, self._is_down = 0, False
        self._faults: dict[str, int] = {}
        self._begun: dict[str, _Begin] = {}

    def _violated(self, text: str) -> None:
        self._say("G7", text)

    # ------------------------------------------------------------ causes

    def foreign_completed(self, name: str) -> None:
        """Another engine put this file on the data timeline; one of what is not completed changes nothing."""
        parts = parse_name(name)
        if parts is None or parts[1] is None:
            return
        requested, _, word, _ = parts
        if word in _ENDS_ATTEMPTS:
            self._causes.add(name)
        if word in _MOVES:
            is_compaction = f"{requested}.compaction.requested" in self._names()
            (self._compactions if is_compaction else self._unhandled).add(name)

    def indexes_changed(self) -> None:
        """Another engine changed which indexes the table has, or their columns."""
        self._causes.add("another engine changed the indexes")

    def job_failed(self) -> None:
        """A job of the writer failed for good."""
        self._causes.add("the writer's job failed")

    def wished(self) -> None:
        """An assigner asks for a rewind."""
        self._wished = True

    def broker(self, is_down: bool) -> None:
        """Nobody reaches the broker, or everybody does again."""
        self._outages += is_down and not self._is_down
        self._is_down = is_down
        if is_down:
            self._causes.add(_AWAY)

    def aimed_at(self, kind: str) -> None:
        """A fault that meets a process of this kind, now or later: "coordinator", "assigner" …"""
        self._faults[kind] = self._faults.get(kind, 0) + 1

    # ------------------------------------------------------------ decisions

    def decided(self, offset: int, entry: dict[str, Any]) -> None:
        """The next entry of the decisions, whether it counts or not."""
        kind = entry["type"]
        if kind == "coordinator_claimed":
            self._judge_void(tags_hold=True)
            # What the former one was asked for, it had in memory.
            self._term, self._wished = offset, False
            self._claims += 1
            self._causes.add("another coordinator claimed the table")
        elif entry["term"] != self._term:
            return
        elif kind == "rewound" and entry["generation"] == self._generation + 1:
            self._rewound(offset, entry)
        else:
            self._judge_void(tags_hold=True)
        if kind == "epoch_planned":
            self._planned(entry)
        elif kind == "attempt_voided" and self._open == (entry["epoch"], entry["attempt"]):
            timeline = parse_timeline(self._names())
            pending = {each.requested for each in timeline.pending("clustering")}
            begun = {each.requested for each in timeline.pending(*_WRITES)} & self._index_instants()
            self._void = _Void(offset, entry, bool(self._causes), frozenset(pending | (begun - self._ours)))
            self._open = None
        elif kind == "timeline_seen":
            self._compactions.difference_update(entry["added"])
            if self._rewinds:
                self._unhandled.difference_update(entry["added"])
        # What is seen without a rewind needs none.
        self._rewinds = kind == "rewound" or (kind == "timeline_seen" and self._rewinds)

    def _planned(self, entry: dict[str, Any]) -> None:
        self._ours.add(entry["instant"])
        self._open = (entry["epoch"], entry["attempt"])
        self._causes = {_AWAY} if self._is_down else set()
        if entry["instant"] is not None:
            # It was planned under the lock, after a look at all that there was.
            self._unhandled.clear()

    def _judge_void(self, tags_hold: bool) -> bool:
        """Whether a clustering excuses what follows on the attempt that was given up last: the next decision
        says whether all is tagged anew.
        """
        void, self._void = self._void, None
        if void is None:
            return False
        entry = void.entry
        fresh = {(each, entry["epoch"], self._term, tags_hold) for each in void.clusterings} - self._excused
        if not void.has_cause:
            # What was given up for something else leaves the clustering its attempt.
            self._excused |= fresh
        if not (void.has_cause or fresh):
            self._violated(
                f"epoch {entry['epoch']} attempt {entry['attempt']} is given up without a cause: "
                f"{entry['reason']}",
            )
        return bool(fresh)

    def _rewound(self, offset: int, entry: dict[str, Any]) -> None:
        self._generation += 1
        # What is in one transaction with the void attempt follows on it at once; an end lies between others.
        is_alone = self._void is None or offset != self._void.offset + 1
        is_clustered = self._judge_void(tags_hold=is_alone) and not is_alone
        moved = self._unhandled | (self._compactions - set(self._names()))
        due = is_clustered or bool(moved) or (is_alone and self._wished)
        if not due:
            self._violated(f"rewind {self._generation} has no cause: {entry['reason']}")
        # Whoever wished for one has it, also where it goes with a void attempt.
        self._wished = False
        # What is not there any more was seen in the history, or was taken back before anybody saw it.
        self._unhandled.intersection_update(self._names())
        self._compactions.intersection_update(self._names())

    # ------------------------------------------------------------ processes

    def begins(self, process: str, kind: str) -> None:
        """A process was started."""
        # One that is started while the broker is down meets that outage, too.
        outages = self._outages - self._is_down
        self._begun[process] = _Begin(self._claims, outages, self._faults.get(kind, 0))

    def ends(self, process: str, kind: str, term: int | None, error: str) -> None:
        """A process ends by itself. ``term``: of a coordinator that claimed the table."""
        begun = self._begun[process]
        superseded = self._term > term if term is not None else self._claims > begun.claims
        met = self._outages > begun.outages or self._faults.get(kind, 0) > begun.faults
        if not met and not (kind == "coordinator" and superseded):
            self._violated(f"{process} ends without a cause: {error}")
