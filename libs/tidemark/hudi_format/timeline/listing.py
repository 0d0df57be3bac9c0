"""The instants of a timeline folder, kept from listing to listing: a listing costs what changed since the one
before, not what is there.

What is kept follows from the names alone, so it is never wrong: a name that is gone takes its instant along,
and the names of an instant that changed are all merged again.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from functools import cached_property
from typing import Final

from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.timeline.instant import Action, Instant, State, parse_file_name, requested_in

_LISTINGS_MAX: Final = 3
_RANK: Final = {State.REQUESTED: 0, State.INFLIGHT: 1, State.COMPLETED: 2}


class Instants:
    """The instants of one listing in order of requested time, and what is often asked about them."""

    def __init__(self, instants: tuple[Instant, ...]) -> None:
        self.all = instants

    @cached_property
    def by_requested(self) -> dict[str, Instant]:
        """Requested time -> instant; without savepoints."""
        return {instant.requested: instant for instant in self.all if instant.action is not Action.SAVEPOINT}

    @cached_property
    def completed(self) -> tuple[Instant, ...]:
        """The completed ones, in the same order."""
        return tuple(instant for instant in self.all if instant.state is State.COMPLETED)

    @cached_property
    def pending(self) -> tuple[Instant, ...]:
        """The requested and inflight ones, in the same order."""
        return tuple(instant for instant in self.all if instant.state is not State.COMPLETED)

    @cached_property
    def latest_completion(self) -> str | None:
        """The newest completion time; None when nothing is completed."""
        return max((str(instant.completion) for instant in self.completed), default=None)

    @cached_property
    def first_write(self) -> str | None:
        """The requested time of the first write instant, in any state."""
        return next((instant.requested for instant in self.all if instant.action.is_write), None)

    @cached_property
    def first_unkept_write(self) -> str:
        """The requested time of the first write instant that no savepoint keeps; "" when there is none."""
        kept = {instant.requested for instant in self.all if instant.action is Action.SAVEPOINT}
        writes = (instant.requested for instant in self.all if instant.action.is_write)
        return next((requested for requested in writes if requested not in kept), "")


class KeptListing:
    """The last listing of one folder, parsed. Several threads may use it."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._requested: dict[str, str] = {}
        self._names: dict[str, list[str]] = {}
        self._merged: dict[str, list[Instant]] = {}
        self._lacking: set[str] = set()
        self._shown = Instants(())

    def of(self, storage: Storage, folder: str) -> Instants:
        """Lists the folder. Raises UnsupportedTableError for a file of an unknown action."""
        with self._mutex:
            for _ in range(_LISTINGS_MAX):
                self._update(storage.names(folder))
                # A listing is no snapshot: of an instant that completed meanwhile it may lack the requested
                # file, which tells whether a `.commit` is a compaction. The next listing has it.
                if not self._lacking:
                    break
            return self._shown

    def _update(self, names: list[str]) -> None:
        known = self._requested
        new = [name for name in names if name not in known]
        gone = known.keys() - set(names) if len(known) + len(new) != len(names) else ()
        if not new and not gone:
            return
        changed: set[str] = set()
        for name in gone:
            requested = known.pop(name)
            self._names[requested].remove(name)
            changed.add(requested)
        for name in new:
            known[name] = requested = requested_in(name)
            self._names.setdefault(requested, []).append(name)
            changed.add(requested)
        try:
            for requested in changed:
                self._merge(requested)
        except BaseException:
            # The next listing begins anew, and meets the same name.
            self._requested, self._names, self._merged, self._lacking = {}, {}, {}, set()
            raise
        self._shown = Instants(
            tuple(instant for key in sorted(self._merged) for instant in self._merged[key])
        )

    def _merge(self, requested: str) -> None:
        self._lacking.discard(requested)
        names = self._names[requested]
        states = [instant for name in sorted(names) if (instant := parse_file_name(name)) is not None]
        merged = merge_states(states)
        if merged:
            self._merged[requested] = merged
        else:
            self._merged.pop(requested, None)
        if not names:
            del self._names[requested]
        if any(instant.action is not Action.SAVEPOINT for instant in merged) and not any(
            state.state is State.REQUESTED for state in states
        ):
            self._lacking.add(requested)


def merge_states(found: Iterable[Instant]) -> list[Instant]:
    """One instant per requested time (plus savepoints): in its furthest state, with the action of its
    earliest one.

    Two executors of one plan leave two completed files with the same content for readers. Hudi takes the one
    that the listing names first: the earlier completion time where listings are sorted (object stores, HDFS),
    and any of them on a local folder. We always take the earlier one.
    """
    by_requested: dict[tuple[str, bool], list[Instant]] = {}
    for instant in found:
        by_requested.setdefault((instant.requested, instant.action is Action.SAVEPOINT), []).append(instant)
    merged: list[Instant] = []
    for (requested, _), states in sorted(by_requested.items()):
        states.sort(key=lambda state: (_RANK[state.state], state.completion or ""))
        last = next((state for state in states if state.is_completed), states[-1])
        merged.append(Instant(requested, states[0].action, last.state, last.completion))
    return merged
