"""How much an assigner may tag before an epoch is committed.

Entries of a planned epoch are never refused: a transaction is tagged only while there is room, and what a
former owner tagged is loaded without asking for room. So whatever is held belongs to transactions that the
next epochs cover, and their commit makes room. Without entries there is room for one transaction, however
little memory there is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tidemark.index_assigner.shuffle.keyed_source import KeyedSlice
from tidemark.index_assigner.slots.stage_work import Budget

_ROW_BYTES: Final = 128
"""At most so much an entry takes beside its key: its row, its place in the hash table, and what both have in
reserve.
"""
_ROWS_MIN: Final = 64
"""A lane with one entry takes the memory of so many."""
_FULL_SHARE: Final = 8
"""The tier is full when less than this part of it is free. Its tables grow by jumps, and tiny transactions
would fill the rest.
"""


@dataclass(frozen=True, slots=True)
class UncommittedLimits:
    """``memory``: bytes. ``entries``: None where memory alone is the limit."""

    memory: int
    entries: int | None = None

    def allowed(
        self, budget: Budget, entries: int, memory: int, gathered: Sequence[KeyedSlice]
    ) -> Budget | None:
        """What may be gathered of ``budget``, beside the slices that are not tagged yet; None: nothing.

        ``entries``, ``memory``: what is held. Keys are counted as if the rows were nothing else.
        """
        rows = sum(slice_.rows for slice_ in gathered)
        if self.entries is not None and entries >= self.entries:
            return None
        size = sum(batch.nbytes for slice_ in gathered for batch in slice_.batches)
        room = self.memory - memory - rows * _ROW_BYTES - size
        if (entries or rows) and room <= self.memory // _FULL_SHARE:
            return None
        half = max(room // 2, _ROWS_MIN * _ROW_BYTES)
        return Budget(min(budget.records, half // _ROW_BYTES), min(budget.bytes, half))
