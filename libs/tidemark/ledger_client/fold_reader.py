"""Keeps a `Fold` current with the ledger and the decisions topic.

Reads both read_committed, from the newest snapshot that the decisions hold, or from the start when they hold
none. What lies before that snapshot is never asked for: a broker that was killed may forget that it deleted
records (Kafka notes a log's start once a minute), each topic for itself, and the documents of older snapshots
are gone then. Nor would the entries alone tell what the first snapshot of a new ledger does.

Entries that wait for the other topic (see `epoch_protocol.fold`) are held back here, in order. When a
position was trimmed away under a reader that had fallen behind, the fold is reloaded from the snapshot and
`resets` grows: whoever derived state from single entries starts over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
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
"""(path under the table's base, sha256) -> content; raises when it is missing or has another hash."""


class Applied(NamedTuple):
    """One entry as the fold took it; ``offset`` in its own topic."""

    offset: int
    entry: LedgerEntry | Decision
    verdict: Verdict


class _Begun(NamedTuple):
    """Where the decisions begin, and what is behind that of snapshots and claims, oldest first."""

    at: int
    snapshots: tuple[SnapshotTaken, ...]
    claims: tuple[tuple[int, CoordinatorClaimed], ...]


class FoldReader:
    """Owned by one thread. Call `start()`, then `poll()` for ever, or `catch_up()` once."""

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
        self._held_ledger: deque[tuple[int, LedgerEntry]] = deque()
        self._held_decisions: deque[tuple[int, Decision]] = deque()

    def start(self) -> None:
        """Positions both readers, at what the newest snapshot holds when there is one. When that fails for
        good, the fold has what the claims say: whose the topics are.
        """
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        self._held_ledger.clear()
        self._held_decisions.clear()
        self.fold = self._begin()
        state = self.fold.state
        reader = self._client.partition_reader(Isolation.READ_COMMITTED)
        try:
            reader.assign({self._ledger: state.ledger_next, self._decisions: state.decisions_next})
        except BaseException:
            # Kept, it would read nothing for ever: the next call has to start over.
            reader.close()
            raise
        self._reader = reader

    def _begin(self) -> Fold:
        for _ in range(_STARTS_MAX):
            begun = self._look()
            try:
                return self._fold_of(begun)
            except Exception:
                # Were the snapshots trimmed away while this looked for them? Then there is a newer one.
                if self._look()[:2] == begun[:2]:
                    self.fold = _told_by(begun.claims)
                    raise
        raise DeadlineExceededError(f"the start of {self._decisions.topic} does not hold still")

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
                    found = list(self._decisions_from(reader, begin))
                except OffsetOutOfRangeError:
                    # Trimmed meanwhile.
                    continue
                snapshots = tuple(entry for _, entry in found if isinstance(entry, SnapshotTaken))
                claims = tuple((at, entry) for at, entry in found if isinstance(entry, CoordinatorClaimed))
                return _Begun(begin, snapshots, claims)
        finally:
            reader.close()
        raise DeadlineExceededError(f"the start of {self._decisions.topic} does not hold still")

    def _decisions_from(self, reader: PartitionReader, begin: int) -> Iterator[tuple[int, Decision]]:
        """What cannot be read is passed over: it is said where it counts, behind the newest snapshot."""
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
        """From the newest snapshot whose document is there: each holds all that was applied up to its own
        positions, also one whose coordinator had been replaced, whose document the successor may delete.
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
        """What keeps the ledger from being read on from the snapshot, None when nothing does."""
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
        """Applies what has arrived; waits up to ``timeout_s`` for the first entry."""
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

    def catch_up(self, timeout_s: float = 60.0) -> list[Applied]:
        """Applies everything up to the read_uncommitted ends taken now; nothing before them is undecided.

        Raises DeadlineExceededError when an open transaction hides the end for longer than ``timeout_s``.
        """
        ends = {
            tp: self._admin.end_offset(tp, Isolation.READ_UNCOMMITTED)
            for tp in (self._ledger, self._decisions)
        }
        deadline_ms = self._clock.now_ms() + int(timeout_s * 1000)
        applied = self.poll(0.0)
        while not self._reached(ends):
            if self._clock.now_ms() > deadline_ms:
                raise DeadlineExceededError(
                    f"the ends of {self._ledger.topic} and {self._decisions.topic} were not readable within "
                    f"{timeout_s:.0f} s: an open transaction hides them (a frozen service?)"
                )
            applied += self.poll(0.05)
        return applied

    def close(self) -> None:
        """Releases the Kafka clients."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        self._admin.close()

    def ledger_position(self) -> int:
        """Everything in the ledger below this offset is decided and applied (or held back for a decision)."""
        assert self._reader is not None
        return self._held_ledger[0][0] if self._held_ledger else self._reader.position(self._ledger)

    def _reached(self, ends: dict[TopicPartition, int]) -> bool:
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
