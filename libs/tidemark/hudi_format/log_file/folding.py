"""Log compaction: which blocks of a slice's log files are merged, and in which order.

A log compaction writes the blocks of several instants once more as one ("folded") block, whose header names
these instants; the original files stay. The rule: readers go through the instants from the newest to the
oldest. A folded block at first only registers the instants that it stands for. It is used at the place of the
newest of them, and the originals are skipped.

Example: instant 5 folds 1 and 2, and 3 was committed before 5. The merge order is 5, 3, so the changes of 3
stay on top of those of 1 and 2.

A folded block without any original in the slice is not used. That happens when a compaction is planned while
the folding runs: the compaction has merged the originals, and merging them again would bring back what was
changed or deleted since.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence


def merge_instants(instants: Sequence[str], folds: Mapping[str, Collection[str]]) -> list[str]:
    """The instants whose blocks are merged, in merge order.

    `instants`: the instants that have blocks in the slice, each once, oldest first. `folds`: the instant of a
    folded block -> the instants that it stands for, which may be foldings themselves.
    """
    stands_for: dict[str, str] = {}
    order: dict[str, None] = {}
    for instant in reversed(instants):
        final = stands_for.get(instant, instant)
        if folds.get(instant):
            stands_for.update(dict.fromkeys(folds[instant], final))
        else:
            order[final] = None
    return list(order)[::-1]
