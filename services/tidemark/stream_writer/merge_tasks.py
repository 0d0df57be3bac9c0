"""How many merges of table services run at once.

| slots | usual (`share` 0.25) | while compactions are behind (0.5) |
|---|---|---|
| 1 | 1 | 1 |
| 2 to 4 | 1 | 2 |
| 8 | 2 | 4 |

While compactions are behind the coordinator grants half of the slots, and they get at least two, but no more
than the engine runs beside epochs.
"""

from __future__ import annotations

from typing import Final

_LEAST_BEHIND: Final = 2


def merge_tasks(slots: int, most: int, share: float, is_behind: bool) -> int:
    """The number of tasks. ``slots``: those of epochs, or of a process that does nothing else. ``most``: so
    many merges leave epochs a slot. ``share``: the part of the slots that is granted.
    """
    granted = max(1, int(slots * share))
    return max(granted, min(_LEAST_BEHIND, most)) if is_behind else granted
