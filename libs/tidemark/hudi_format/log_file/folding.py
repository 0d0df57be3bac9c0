"""Log compaction: which blocks of a slice's log files are merged, and in which order.

A log compaction writes the blocks of several instants once more as one ("folded") block, which names them in
its header; the originals stay. Readers walk the instants from the newest to the oldest: a folded block only
registers what it stands for, and is used at the place of the newest of its originals. Example, 5 folds 1 and
2, and 3 was committed before 5: the order of merging is 5, 3, so that what 3 changed stays.

A folded block without an original in the slice is not used at all. It comes there when a compaction is
planned while the folding runs: then the compaction has merged the originals, and merging them again would
bring back what was changed or deleted since.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence


def merge_instants(instants: Sequence[str], folds: Mapping[str, Collection[str]]) -> list[str]:
    """The instants whose blocks are merged, in this order.

    `instants`: those that have blocks in the slice, oldest first, each once. `folds`: a folded block's
    instant -> the instants that it stands for, earlier foldings among them.
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
