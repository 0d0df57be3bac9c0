"""What the coordinator does when compactions do not keep up with writing. Pure.

The *load* of a file slice says how many times it has reached what triggers its compaction: 1.0 at the
trigger. Compactions are behind from `BEHIND` on, and no slice should ever reach `BOUND`. In this order:

    level       from    what is done
    NONE                nothing
    SHARE       2.0     compactions get half of the task slots, at least two (`merge_tasks`)
    STRETCHED   2.2     the interval of epochs grows, up to ten seconds: fewer and larger log files
    SLOWED      2.5     tagging rests for a part of the time, from 2.95 on all the time

A level is left only when the load is clearly below where the level begins (`_LEAVES`), and levels follow each
other one by one (`LEVEL_STEPS`). What is tagged is committed at every level.

*Reach* is where a slice can get before a decision takes effect: three more commits may come (the next one
before anything is decided again, then the one that is tagged by then, and the one that is tagged until
assigners rest), each with the growth that the largest had lately. Levels go by the reach of the worst slice.
Slices below their trigger do not count, as nobody compacts them. So the bound holds where no commit adds more
than two thirds of a trigger to a slice. Only the number of log files grows more slowly with longer epochs, so
the interval goes by that number alone.

Slices that were above `BOUND` when the table was listed are left out: a table that nobody compacted for a day
is brought back while epochs go on. They only raise the share. Slices that another engine planned to rewrite
are left to it, and do not count at all: tagging would wait for what nobody may ever do. The age of a log file
is no load: epochs do not make it older. If compactions fail, or do not get on, tagging does not wait for them
(`Compactions`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tidemark.commit_coordinator.domain.slice_stats import GroupName, SliceStats

BOUND: Final = 3.0
BEHIND: Final = 2.0
STRETCHED_MS: Final = 10_000
STALLED_MS: Final = 600_000
"""Tagging does not wait longer than this without a compaction that gets on."""
_STRETCHES_BY: Final = 0.5
_RESTS_FROM, _RESTS_WHOLLY_FROM = 2.5, 2.95
_REST_WINDOW_MS: Final = 4_000
# So many commits are remembered for the growth of the largest.
_COMMITS: Final = 16
_COMING: Final = 3
# Log files of a few megabytes are no load, however small the base file is: merging them costs nothing.
_LOG_BYTES_MIN: Final = 8 << 20


class BackpressureLevel(StrEnum):
    """The module's table has what each level does."""

    NONE = "none"
    SHARE = "share"
    STRETCHED = "stretched"
    SLOWED = "slowed"


LEVEL_STEPS: Final[Mapping[BackpressureLevel, frozenset[BackpressureLevel]]] = {
    BackpressureLevel.NONE: frozenset({BackpressureLevel.SHARE}),
    BackpressureLevel.SHARE: frozenset({BackpressureLevel.NONE, BackpressureLevel.STRETCHED}),
    BackpressureLevel.STRETCHED: frozenset({BackpressureLevel.SHARE, BackpressureLevel.SLOWED}),
    BackpressureLevel.SLOWED: frozenset({BackpressureLevel.STRETCHED}),
}
"""Which level may follow on which; each may also stay."""
_LEVELS: Final = tuple(BackpressureLevel)
_BEGINS: Final = {
    BackpressureLevel.SHARE: BEHIND,
    BackpressureLevel.STRETCHED: 2.2,
    BackpressureLevel.SLOWED: _RESTS_FROM,
}
_LEAVES: Final = {
    BackpressureLevel.SHARE: 1.5,
    BackpressureLevel.STRETCHED: 1.8,
    BackpressureLevel.SLOWED: 2.2,
}


@dataclass(frozen=True, slots=True)
class LoadRule:
    """What triggers a compaction: a number of log files, their bytes, or their part of the base file's.

    ``log_bytes``: None where the bytes of all slices together trigger it, and no slice's own: those of the
    metadata table. Example: the index has 1 GB in 50 base files, and a new data partition's file group of it
    gets all inserts. With 24 MiB it has three times what its own base file would call for, but nothing is
    compacted before all log files have 300 MB: tagging must not wait at 24 MiB. ``ratio_from``: together they
    count from so many bytes on.
    """

    log_files: int
    log_bytes: int | None
    log_ratio: float
    ratio_from: int = 0

    def loads(self, slice_: SliceStats) -> tuple[float, float]:
        """The load by the number of log files, and by their bytes."""
        by_files = slice_.log_count / self.log_files
        if self.log_bytes is None:
            return by_files, 0.0
        enough = max(min(self.log_bytes, self.log_ratio * slice_.base_bytes), _LOG_BYTES_MIN)
        return by_files, slice_.log_bytes / enough

    def load_together(self, slices: Sequence[SliceStats]) -> float:
        """The load of all slices by their bytes, where these count together; else 0.0."""
        if self.log_bytes is not None or not slices:
            return 0.0
        enough = sum(
            max(self.log_ratio * slice_.base_bytes, _LOG_BYTES_MIN if slice_.log_count else 0)
            for slice_ in slices
        )
        return sum(slice_.log_bytes for slice_ in slices) / max(enough, self.ratio_from, _LOG_BYTES_MIN)


@dataclass(frozen=True, slots=True)
class SliceLoad:
    """The load of one table's slices, those aside that were above `BOUND` at the listing.

    ``now``: that of the worst slice. ``reach``: where it can get, ``files``: the same by the number of log
    files alone. ``worst``: that slice; None where all together are worse. ``left_behind``: the greatest load
    of what was left out.
    """

    now: float = 0.0
    reach: float = 0.0
    files: float = 0.0
    worst: GroupName | None = None
    left_behind: float = 0.0


class LoadWatch:
    """Follows the loads of one table's slices, the data's or the metadata table's, from commit to commit."""

    def __init__(self, rule: LoadRule) -> None:
        self._rule = rule
        self._seen: tuple[SliceStats, ...] = ()
        self._loads: dict[GroupName, tuple[SliceStats, float, float]] = {}
        self._left_out: set[GroupName] = set()
        self._held: frozenset[GroupName] = frozenset()
        self._listing = 0
        self._growths: deque[float] = deque(maxlen=_COMMITS)
        self._together, self._together_left_out = 0.0, False
        self._load = SliceLoad()

    def look(
        self, slices: tuple[SliceStats, ...], listing: int, held: frozenset[GroupName] = frozenset()
    ) -> SliceLoad:
        """The load now; as before if nothing changed. ``listing``: the number of the table's last listing.
        ``held``: the groups that another engine planned to rewrite.
        """
        if listing != self._listing:
            self._listed(slices, listing)
        elif slices is self._seen and held == self._held:
            return self._load
        # As at a listing: what grew meanwhile raises the share alone.
        self._left_out |= {group for group in self._held - held if self._is_above(group)}
        self._held = held
        self._seen = slices
        growth = 0.0
        for slice_ in slices:
            known = self._loads.get(slice_.group)
            if known is None or known[0] is not slice_:
                growth = max(growth, self._note(slice_))
        growth = max(growth, self._note_together(slices))
        if growth > 0.0:
            self._growths.append(growth)
        self._load = self._sum()
        return self._load

    def _listed(self, slices: Sequence[SliceStats], listing: int) -> None:
        self._listing, self._loads = listing, {}
        for slice_ in slices:
            self._note(slice_)
        self._left_out = {group for group in self._loads if self._is_above(group)}
        self._note_together(slices)
        self._together_left_out = self._together >= BOUND

    def _is_above(self, group: GroupName) -> bool:
        _, *loads = self._loads.get(group, (None, 0.0))
        return max(loads) >= BOUND

    def _note(self, slice_: SliceStats) -> float:
        """Keeps the slice's loads; returns by how much they grew."""
        loads = self._rule.loads(slice_)
        before = self._loads.get(slice_.group)
        self._loads[slice_.group] = (slice_, *loads)
        return max(loads) - (max(before[1:]) if before is not None else 0.0)

    def _note_together(self, slices: Sequence[SliceStats]) -> float:
        before, self._together = self._together, self._rule.load_together(slices)
        self._together_left_out = self._together_left_out and self._together >= BEHIND
        return self._together - before

    def _sum(self) -> SliceLoad:
        files = worst_load = left_behind = 0.0
        worst: GroupName | None = None
        for group, (_, by_files, by_bytes) in self._loads.items():
            load = by_files if by_files > by_bytes else by_bytes
            if group in self._held:
                continue
            if group in self._left_out:
                if load < BEHIND:
                    self._left_out.discard(group)
                else:
                    left_behind = max(left_behind, load)
                    continue
            if load > worst_load:
                worst, worst_load = group, load
            if by_files > files:
                files = by_files
        if self._together_left_out:
            left_behind = max(left_behind, self._together)
        elif self._together > worst_load:
            worst, worst_load = None, self._together
        if worst_load < 1.0:
            return SliceLoad(left_behind=left_behind)
        reach = worst_load + _COMING * max(self._growths, default=0.0)
        by_files = min(files + _COMING / self._rule.log_files, reach)
        return SliceLoad(worst_load, reach, by_files, worst, left_behind)


@dataclass(frozen=True, slots=True)
class Compactions:
    """The load of one kind of compaction, and whether waiting for it helps.

    ``works``: the kind is enabled, services are not paused, and its last actions did not fail.
    ``progress_ms``: when one was last seen to get on (Unix epoch): it was planned, an operation of it was
    done, or it was reported, decided or ended.
    """

    name: str
    load: SliceLoad
    works: bool
    progress_ms: int = 0


@dataclass(frozen=True, slots=True)
class Backpressure:
    """What is done now. ``interval_ms``: of epochs. ``rest``: the part of the time in which tagging rests.

    ``since_ms``: when the level began (Unix epoch). ``reason``: for people; "" at level NONE.
    """

    level: BackpressureLevel = BackpressureLevel.NONE
    interval_ms: int = 0
    rest: float = 0.0
    since_ms: int = 0
    reason: str = ""

    @property
    def raises_share(self) -> bool:
        """Whether compactions get more task slots than usual."""
        return self.level is not BackpressureLevel.NONE

    @property
    def words(self) -> str:
        """Why, and what is done, for people; "" at level NONE."""
        if self.level is BackpressureLevel.NONE:
            return ""
        done = ["compactions get more task slots"]
        if self.level in (BackpressureLevel.STRETCHED, BackpressureLevel.SLOWED):
            done.append(f"an epoch is planned every {self.interval_ms / 1_000:.1f} s")
        if self.rest > 0.0:
            done.append(f"tagging rests {self.rest:.0%} of the time")
        return f"{self.reason}: {', '.join(done)}"

    def rests(self, now_ms: int) -> bool:
        """Whether tagging rests at this moment."""
        return self.rest > 0.0 and now_ms % _REST_WINDOW_MS < self.rest * _REST_WINDOW_MS


def decide_backpressure(
    before: Backpressure, compactions: Sequence[Compactions], interval_ms: int, now_ms: int
) -> Backpressure:
    """What is done from now on. ``interval_ms``: the configured one. Asked every second or so, and after each
    commit; the level changes by one step.
    """
    behind = [compaction for compaction in compactions if compaction.works]
    reach = max((compaction.load.reach for compaction in behind), default=0.0)
    files = max((compaction.load.files for compaction in behind), default=0.0)
    left_behind = max((compaction.load.left_behind for compaction in behind), default=0.0)
    level = _next_level(before.level, reach, is_behind=left_behind >= BEHIND)
    since_ms = before.since_ms if level is before.level else now_ms
    worst = max(
        behind, key=lambda compaction: max(compaction.load.reach, compaction.load.left_behind), default=None
    )
    if level is BackpressureLevel.NONE or worst is None:
        return Backpressure(BackpressureLevel.NONE, interval_ms, since_ms=since_ms)
    stretched_ms, rest = interval_ms, 0.0
    if level in (BackpressureLevel.STRETCHED, BackpressureLevel.SLOWED):
        stretched_ms = _stretched(interval_ms, files)
    if level is BackpressureLevel.SLOWED:
        waiting = [compaction for compaction in behind if not _is_stalled(compaction, since_ms, now_ms)]
        slowing = max((compaction.load.reach for compaction in waiting), default=0.0)
        rest = min(max((slowing - _RESTS_FROM) / (_RESTS_WHOLLY_FROM - _RESTS_FROM), 0.0), 1.0)
    return Backpressure(level, stretched_ms, rest, since_ms, _reason(worst))


def _next_level(level: BackpressureLevel, reach: float, is_behind: bool) -> BackpressureLevel:
    at = _LEVELS.index(level)
    if at + 1 < len(_LEVELS):
        higher = _LEVELS[at + 1]
        if reach >= _BEGINS[higher] or (is_behind and higher is BackpressureLevel.SHARE):
            return higher
    if at > 0 and reach < _LEAVES[level] and not (is_behind and level is BackpressureLevel.SHARE):
        return _LEVELS[at - 1]
    return level


def _stretched(interval_ms: int, files: float) -> int:
    part = min(max((files - BEHIND) / _STRETCHES_BY, 0.0), 1.0)
    return interval_ms + round(part * max(STRETCHED_MS - interval_ms, 0))


def _is_stalled(compactions: Compactions, since_ms: int, now_ms: int) -> bool:
    return now_ms - max(compactions.progress_ms, since_ms) >= STALLED_MS


def _reason(worst: Compactions) -> str:
    load = worst.load
    if load.left_behind > load.reach:
        return (
            f"{worst.name} is behind: file groups that were not compacted for long have "
            f"{load.left_behind:.1f} times what triggers it"
        )
    if load.reach < 1.0:
        return f"{worst.name} was behind"
    where = "all file groups together" if load.worst is None else "/".join(filter(None, load.worst))
    return f"{worst.name} is behind: {where} may soon have {load.reach:.1f} times what triggers it"
