"""Keeps a `Fold` current with the ledger and the decisions topic.

The reader reads both topics read_committed, in these steps:

1. It looks for the newest snapshot that the decisions hold and restores the fold from its document; without
   any snapshot the fold begins empty, at the start of both topics.
2. It reads on from the two positions of that snapshot. It never asks for earlier offsets: a broker that was
   killed may forget that records were deleted (Kafka checkpoints a log's start once a minute), independently
   for each topic, while the documents of older snapshots are gone. The entries alone would not do either: the
   first snapshot of a new ledger holds facts that no entry has.
3. It holds back entries that wait for the other topic (see `epoch_protocol.fold`), in order, and applies them
   as soon as they no longer wait.
4. When the reader fell behind and its position was trimmed away, it reloads the fold as in step 1 and raises
   `resets`: a caller that derived state from single entries must start over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from tidemark.epoch_protocol.entries import (
    CoordinatorClaimed,
    Decision,
    LedgerEntry,
    SnapshotTaken,
    decode_decision,
    decode_ledger_entry,
)
from tidemark.epoch_protocol.errors import FoldGapError, UnknownEntryError
from tidemark.epoch_protocol.fold import Fold, Verdict
from tidemark.ledger_client.own_messages import WAY_OUT, placed
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.errors import DeadlineExceededError
from tidemark.stream_runtime.kafka.ports import (
    Isolation,
    KafkaClient,
    Message,
    OffsetOutOfRangeError,
    PartitionReader,
    TopicPartition,
)
from tidemark.stream_runtime.retry import Deadline

_POLL_MESSAGES_MAX = 2_000
_STARTS_MAX = 5
_READ_TIMEOUT_S = 60.0
_WAITS = (Verdict.WAIT_FOR_DECISIONS, Verdict.WAIT_FOR_LEDGER)

SnapshotLoader = Callable[[str, str], bytes]
"""(path below the table's base, sha256) -> content. Raises when the file is missing or has another hash."""


class Applied(NamedTuple):
    """One entry and what the fold did with it; ``offset`` is the offset in the entry's own topic."""

    offset: int
    entry: LedgerEntry | Decision
    verdict: Verdict


Ends = Mapping[TopicPartition, int]
"""An offset of each of both topics: whoever has read up to there has read all that was written before."""


class _Begun(NamedTuple):
    """The first offset of the decisions, and the snapshots and claims from there on, oldest first."""

    at: int
    snapshots: tuple[SnapshotTaken, ...]
    claims: tuple[tuple[int, CoordinatorClaimed], ...]


class FoldReader:
    """Belongs to one thread. Call `start()`, then `poll()` again and again, or `catch_up()` once; `follow()`
    before a long time of polls.
    """

    def __init__(
        self,
        client: KafkaClient,
        ledger_topic: str,
        decisions_topic: str,
        load_snapshot: SnapshotLoader,
        clock: Clock,
    ) -> None:
        self.fold = Fold()
        self.resets = 0
        self._client = client
        self._ledger = TopicPartition(ledger_topic, 0)
        self._decisions = TopicPartition(decisions_topic, 0)
        self._load_snapshot = load_snapshot
        self._clock = clock
        self._admin = client.admin()
        self._reader: PartitionReader | None = None
        self._follows = False
        self._held_ledger: deque[tuple[int, LedgerEntry]] = deque()
        self._held_decisions: deque[tuple[int, Decision]] = deque()

    def start(self) -> None:
        """Restores the fold from the newest snapshot, if any, and positions the reader behind it.

        Raises FoldGapError when entries that the fold needs were deleted, DeadlineExceededError when the
        topic's start keeps moving or cannot be read in time, and what the snapshot loader raises. The fold
        then holds the coordinators' claims alone, so that a caller can tell which table the topics belong to.
        """
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        self._held_ledger.clear()
        self._held_decisions.clear()
        self.fold = self._begin()
        state = self.fold.state
        self._read_from({self._ledger: state.ledger_next, self._decisions: state.decisions_next})

    def follow(self) -> None:
        """From now on new entries are waited for: reading costs little while none come, and they come as soon
        as before. A `catch_up` takes up to half a second longer.
        """
        assert self._reader is not None
        former, self._follows = self._reader, True
        self._read_from({tp: former.position(tp) for tp in (self._ledger, self._decisions)})
        former.close()

    def _read_from(self, positions: dict[TopicPartition, int]) -> None:
        reader = self._client.partition_reader(Isolation.READ_COMMITTED, follows=self._follows)
        try:
            reader.assign(positions)
        except BaseException:
            # A reader without positions would never return a message: the next call must make another one.
            reader.close()
            raise
        self._reader = reader

    def _begin(self) -> Fold:
        for _ in range(_STARTS_MAX):
            begun = self._look()
            try:
                return self._fold_of(begun)
            except Exception:
                # If trimming removed the snapshots after the look, a newer one exists: look again.
                if self._look()[:2] == begun[:2]:
                    self.fold = _told_by(begun.claims)
                    raise
        raise DeadlineExceededError(
            f"the first offset of {self._decisions.topic} moved during each of {_STARTS_MAX} readings"
        )

    def _fold_of(self, begun: _Begun) -> Fold:
        fold = self._restore(begun)
        gap = self._gap(fold)
        if gap is not None:
            raise FoldGapError(gap)
        return fold

    def _look(self) -> _Begun:
        reader = self._client.partition_reader(Isolation.READ_COMMITTED)
        try:
            for _ in range(_STARTS_MAX):
                begin = self._admin.start_offset(self._decisions)
                try:
                    decisions = list(self._decisions_from(reader, begin))
                except OffsetOutOfRangeError:
                    # The coordinator trimmed the topic after `begin` was asked.
                    continue
                snapshots = tuple(entry for _, entry in decisions if isinstance(entry, SnapshotTaken))
                claims = tuple(
                    (at, entry) for at, entry in decisions if isinstance(entry, CoordinatorClaimed)
                )
                return _Begun(begin, snapshots, claims)
        finally:
            reader.close()
        raise DeadlineExceededError(
            f"the first offset of {self._decisions.topic} moved during each of {_STARTS_MAX} readings"
        )

    def _decisions_from(self, reader: PartitionReader, begin: int) -> Iterator[tuple[int, Decision]]:
        """The decisions from ``begin`` to the end. Unreadable ones are left out here: the reader reports them
        when it applies entries, and only those behind the newest snapshot matter.
        """
        end = self._admin.end_offset(self._decisions, Isolation.READ_COMMITTED)
        if begin >= end:
            return
        deadline = Deadline(self._clock, _READ_TIMEOUT_S)
        reader.assign({self._decisions: begin})
        while reader.position(self._decisions) < end:
            deadline.check(f"reading {self._decisions.topic} up to offset {end}")
            for message in reader.poll(_POLL_MESSAGES_MAX, 0.1):
                with suppress(UnknownEntryError):
                    yield message.offset, decode_decision(message.value or b"")

    def _restore(self, begun: _Begun) -> Fold:
        """The fold of the newest snapshot whose document can be loaded.

        An older document is as good: each holds everything applied up to its own positions. The newest one
        may be missing because its coordinator had been replaced and the successor deleted the document.
        """
        if not begun.snapshots:
            return self._of_nothing(begun.at)
        failure: Exception | None = None
        for entry in reversed(begun.snapshots):
            try:
                fold = Fold.restore(self._load_snapshot(entry.path, entry.sha256))
            except Exception as error:
                failure = failure or error
                continue
            fold.state.decisions_next = max(fold.state.decisions_next, begun.at)
            return fold
        assert failure is not None
        raise failure

    def _of_nothing(self, begin: int) -> Fold:
        if begin > 0:
            raise FoldGapError(
                f"topic {self._decisions.topic} starts at offset {begin} without a snapshot entry: "
                f"records were deleted by something else than Tidemark. {WAY_OUT}"
            )
        if self._admin.start_offset(self._ledger) > 0:
            raise FoldGapError(
                f"topic {self._ledger.topic} was trimmed but {self._decisions.topic} was not: "
                f"one of them was recreated. {WAY_OUT}"
            )
        return Fold()

    def _gap(self, fold: Fold) -> str | None:
        """Why the ledger cannot be read on from the snapshot; None when it can."""
        wanted = fold.state.ledger_next
        start = self._admin.start_offset(self._ledger)
        end = self._admin.end_offset(self._ledger, Isolation.READ_UNCOMMITTED)
        if start <= wanted <= end:
            return None
        return (
            f"topic {self._ledger.topic} holds offsets {start} to {end}, and the snapshot of the "
            f"decisions goes on at {wanted}: entries were deleted by something else than Tidemark "
            f"(retention?), or the topic was recreated. {WAY_OUT}"
        )

    def poll(self, timeout_s: float) -> list[Applied]:
        """Applies the entries that have arrived; waits up to ``timeout_s`` seconds for the first one.

        Returns them in the order in which the fold took them, and nothing when the fold was reloaded. Raises
        UnknownEntryError, with topic, partition and offset, for an unreadable entry, and as `start`.
        """
        if self._reader is None:
            self.start()
        assert self._reader is not None
        try:
            messages = self._reader.poll(_POLL_MESSAGES_MAX, timeout_s)
        except OffsetOutOfRangeError:
            self.resets += 1
            self.start()
            return []
        for message in messages:
            self._hold(message)
        return self._apply_held()

    def ends(self, at_most: Ends | None = None) -> Ends:
        """The read_uncommitted ends that both topics have now, for `catch_up`; none is beyond ``at_most``.

        Earlier ends are not just kept: a broker that lost messages may have ends below them.
        """
        found = {
            tp: self._admin.end_offset(tp, Isolation.READ_UNCOMMITTED)
            for tp in (self._ledger, self._decisions)
        }
        return found if at_most is None else {tp: min(end, at_most[tp]) for tp, end in found.items()}

    def catch_up(self, timeout_s: float = 60.0, ends: Ends | None = None) -> list[Applied]:
        """Applies everything up to ``ends``; without them up to those of now.

        So no transaction that began before the ends were read is still open when it returns. Raises
        DeadlineExceededError when an open transaction hides an end, or the client reaches no broker, for
        longer than ``timeout_s`` seconds, and as `poll`. Whoever tries again and again with a short time
        takes no ends beyond those of the first try: on a slow broker some transaction is open whenever ends
        are read, and each outlasts that time.
        """
        ends = self.ends() if ends is None else ends
        deadline_ms = self._clock.now_ms() + int(timeout_s * 1000)
        applied = self.poll(0.0)
        while not self._reached(ends):
            if self._clock.now_ms() > deadline_ms:
                raise DeadlineExceededError(
                    f"the ends of {self._ledger.topic} and {self._decisions.topic} were not readable within "
                    f"{timeout_s:.0f} s: an open transaction may hide them (a frozen service?), or the Kafka "
                    "client of this process reaches no broker"
                )
            applied += self.poll(0.05)
        return applied

    def close(self) -> None:
        """Closes the Kafka clients."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        self._admin.close()

    def ledger_position(self) -> int:
        """All ledger entries below this offset are applied.

        It is the reader's position, or the first entry that is held back for a decision.
        """
        assert self._reader is not None
        return self._held_ledger[0][0] if self._held_ledger else self._reader.position(self._ledger)

    def _reached(self, ends: Ends) -> bool:
        assert self._reader is not None
        if self._held_ledger or self._held_decisions:
            return False
        return all(self._reader.position(tp) >= end for tp, end in ends.items())

    def _hold(self, message: Message) -> None:
        value = message.value or b""
        with placed(message):
            if message.topic == self._ledger.topic:
                self._held_ledger.append((message.offset, decode_ledger_entry(value)))
            else:
                self._held_decisions.append((message.offset, decode_decision(value)))

    def _apply_held(self) -> list[Applied]:
        applied: list[Applied] = []
        progress = True
        while progress:
            progress = False
            while self._held_ledger:
                offset, entry = self._held_ledger[0]
                verdict = self.fold.apply_ledger(offset, entry)
                if verdict in _WAITS:
                    break
                self._held_ledger.popleft()
                applied.append(Applied(offset, entry, verdict))
                progress = True
            while self._held_decisions:
                decided_at, decision = self._held_decisions[0]
                verdict = self.fold.apply_decision(decided_at, decision)
                if verdict in _WAITS:
                    break
                self._held_decisions.popleft()
                applied.append(Applied(decided_at, decision, verdict))
                progress = True
        return applied


def _told_by(claims: Iterable[tuple[int, CoordinatorClaimed]]) -> Fold:
    fold = Fold()
    for offset, claim in claims:
        fold.apply_decision(offset, claim)
    return fold
