"""Backpressure of one term: follows the file slices and the compactions, and says what is done
(`domain/backpressure.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from tidemark.commit_coordinator.calls.placement import Placement
from tidemark.commit_coordinator.calls.service_handoff import GrantedSlots, ServiceProgress
from tidemark.commit_coordinator.domain.backpressure import (
    BEHIND,
    Backpressure,
    Compactions,
    LoadRule,
    LoadWatch,
    decide_backpressure,
)
from tidemark.commit_coordinator.domain.service_actions import SeenServices
from tidemark.config.table_services_model import SHARE_BEHIND, TableServicesConfig
from tidemark.epoch_protocol.service_entries import ServiceKind
from tidemark.epoch_protocol.state import FoldState

_EVERY_MS: Final = 1_000
AHEAD_MS: Final = 5_000
"""An action that waits longer for the clock is ahead of it: another engine's clock is, or ours was."""
FAILING: Final = 3
"""After so many failures in a row, tagging does not wait for a kind any more."""


class _Place(NamedTuple):
    """How far a kind's actions are. A greater one is progress: a new action, a decision, a report, one more
    operation done. A lease is none: a worker renews it for as long as it lives, also where no task of its
    gets a place to run. Nor are operations that are done again after a failure.
    """

    number: int
    is_decided: bool
    is_reported: bool
    done: int


class ServicePressure:
    """Used by the loop alone. ``interval_ms``: the configured interval of epochs."""

    def __init__(
        self,
        config: TableServicesConfig,
        placement: Placement,
        interval_ms: int,
        progress_of: Callable[[int], ServiceProgress],
    ) -> None:
        """``progress_of``: how far the tasks of the action with this number are."""
        self._config, self._placement = config, placement
        self._interval_ms, self._progress_of = interval_ms, progress_of
        data, index = config.compact_data, config.compact_index
        self._watches: dict[ServiceKind, LoadWatch] = {}
        if config.enabled and data.enabled:
            rule = LoadRule(data.log_files, data.log_bytes, data.log_ratio)
            self._watches[ServiceKind.COMPACT_DATA] = LoadWatch(rule)
        if config.enabled and index.enabled:
            rule = LoadRule(index.log_files, None, index.log_ratio, index.ratio_from_bytes)
            self._watches[ServiceKind.COMPACT_INDEX] = LoadWatch(rule)
        # The farthest place of each kind, and when it was seen first.
        self._farthest: dict[ServiceKind, tuple[_Place, int]] = {}
        self._next_ms = 0
        self.behind: frozenset[ServiceKind] = frozenset()
        """The kinds of which a file group reached twice the trigger."""
        self.now = Backpressure(interval_ms=interval_ms)

    @property
    def granted(self) -> GrantedSlots:
        """What merges may take of a worker's task slots now."""
        share, is_behind = self._config.share, self.now.raises_share
        return GrantedSlots(max(share, SHARE_BEHIND) if is_behind else share, is_behind)

    def look(self, state: FoldState, seen: SeenServices, now_ms: int) -> None:
        """Decides anew, once a second."""
        if 0 < self._next_ms - now_ms <= _EVERY_MS:
            return
        self._next_ms = now_ms + _EVERY_MS
        slices = self._placement.snapshot()
        if not slices.is_listed:
            return
        compactions: list[Compactions] = []
        behind: set[ServiceKind] = set()
        for kind, watch in self._watches.items():
            is_data = kind is ServiceKind.COMPACT_DATA
            of_kind, held = (slices.data, slices.left_out) if is_data else (slices.index, frozenset())
            load = watch.look(of_kind, slices.listing, held)
            if max(load.now, load.left_behind) >= BEHIND:
                behind.add(kind)
            noted = seen.kind(kind)
            # What can make no compaction now must not hold tagging up: nothing would end that.
            waits = noted.found_nothing or self._waits_for_clocks(state, seen, kind, now_ms)
            failures = max(noted.failures, self._step_failures(state, seen, kind))
            works = not (state.services_paused or failures >= FAILING or waits)
            progress_ms = self._progress_ms(state, seen, kind, now_ms)
            compactions.append(Compactions(kind.value, load, works, progress_ms))
        self.behind = frozenset(behind)
        self.now = decide_backpressure(self.now, compactions, self._interval_ms, now_ms)

    def _waits_for_clocks(self, state: FoldState, seen: SeenServices, kind: ServiceKind, now_ms: int) -> bool:
        """Whether the kind's action is ahead of the clock: another engine's clock is, and times only grow."""
        held = state.services.get(kind)
        return held is not None and seen.action(held.planned.service).decide_at_ms - now_ms > AHEAD_MS

    def _step_failures(self, state: FoldState, seen: SeenServices, kind: ServiceKind) -> int:
        """How often in a row a step of the kind's open action failed: an action that is decided is not void,
        however often. What is the fault of file groups is no failure of the kind.
        """
        held = state.services.get(kind)
        if held is None or (noted := seen.action(held.planned.service)).of_left_out:
            return 0
        return noted.failures

    def _progress_ms(self, state: FoldState, seen: SeenServices, kind: ServiceKind, now_ms: int) -> int:
        ended_ms, held = seen.kind(kind).ended_ms, state.services.get(kind)
        if held is None:
            return ended_ms
        number = held.planned.service
        is_reported, done = seen.action(number).reported, self._progress_of(number).done
        place = _Place(number, held.decided is not None, is_reported, done)
        before = self._farthest.get(kind)
        if before is None or place > before[0]:
            self._farthest[kind] = before = place, now_ms
        return max(ended_ms, before[1])
