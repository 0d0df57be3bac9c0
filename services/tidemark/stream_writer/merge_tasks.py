"""How many merges of table services run at once.

| slots | usual (`share` 0.25) | while compactions are behind |
|---|---|---|
| 1 | 1 | 1 |
| 2 to 4 | 1 | 2 |
| 8 | 2 | 4 |

While compactions are behind they get half of the slots, and at least one task more than usual, but no more
than the engine runs beside epochs.
"""

from __future__ import annotations

from typing import Final

_SHARE_BEHIND: Final = 0.5


def merge_tasks(slots: int, most: int, share: float, is_behind: bool) -> int:
    """The number of tasks. ``slots``: those of epochs, or of a process that does nothing else. ``most``: so
    many merges leave epochs a slot. ``share``: the part of the slots that is granted.
    """
    usual = max(1, int(slots * share))
    if not is_behind:
        return usual
    return max(usual, min(max(usual + 1, int(slots * _SHARE_BEHIND)), most))
