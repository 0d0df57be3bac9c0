"""How many input offsets are not shuffled and not committed yet, without the offsets that hold no records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from tidemark.commit_coordinator.commit.view import CoordinatorView
from tidemark.stream_runtime.clock import Clock

_LOOKED_AT_MAX: Final = 1_000
_LOOKS_MAX: Final = 16
_LOOKS_S: Final = 2.0


class InputLag:
    """The lag of the input; for one thread.

    Markers and aborted records of transactional producers use offsets, too, and no position moves past them
    before the next record comes. So a table that is up to date would seem to lag behind. If the range behind
    a position is small and nothing is in flight, the lag asks whether it holds records: at most
    `_LOOKED_AT_MAX` offsets of a lane, `_LOOKS_MAX` lanes and `_LOOKS_S` seconds in one call. An empty range
    stays empty and is remembered. All other ranges count in full, markers included.
    """

    def __init__(
        self,
        ends: Callable[[], Mapping[str, int]],
        holds_records: Callable[[str, int, int], bool],
        clock: Clock,
    ) -> None:
        """``ends``: input lane -> read_committed end. ``holds_records``: (lane, first, end) -> whether a
        record lies in [first, end).
        """
        self._ends = ends
        self._holds_records = holds_records
        self._clock = clock
        self._empty: dict[str, tuple[int, int]] = {}

    def document(self, view: CoordinatorView) -> dict[str, int]:
        """The sums over all lanes, as `tidemark status` shows them. Raises KafkaError."""
        is_idle = view.planned_epoch is None and not view.uncommitted_transactions
        looks, until_s = _LOOKS_MAX if is_idle else 0, self._clock.monotonic_s() + _LOOKS_S
        shuffled = committed = 0
        for lane, end in self._ends().items():
            taken, done = view.taken_next.get(lane, 0), view.source_next.get(lane, 0)
            reached, wanted = max(taken, done), end
            if self._known_empty(lane, reached) >= end:
                wanted = reached
            elif looks and 0 < end - reached <= _LOOKED_AT_MAX and self._clock.monotonic_s() < until_s:
                looks -= 1
                if self._is_empty(lane, reached, end):
                    wanted = reached
            shuffled += max(wanted - taken, 0)
            committed += max(wanted - done, 0)
        return {"input_offsets_not_shuffled": shuffled, "input_offsets_not_committed": committed}

    def _known_empty(self, lane: str, reached: int) -> int:
        """The offset up to which no record lies behind the position ``reached``, as far as is known."""
        first, end = self._empty.get(lane, (reached, reached))
        return end if first == reached else reached

    def _is_empty(self, lane: str, reached: int, end: int) -> bool:
        if self._holds_records(lane, self._known_empty(lane, reached), end):
            return False
        self._empty[lane] = (reached, end)
        return True
