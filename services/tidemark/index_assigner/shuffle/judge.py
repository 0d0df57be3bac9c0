"""Which records of a batch are refused, and why."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tidemark.record_formats.refusals import DeadLetterReason, Refusal

BoolArray = npt.NDArray[np.bool_]


class Judge:
    """Marks rows as refused; of several reasons for a row the first is kept."""

    def __init__(self, positions: npt.NDArray[np.int64], refused: list[Refusal]) -> None:
        """``positions``: of the rows' records. ``refused`` gets the refusals."""
        self.refused = np.zeros(len(positions), np.bool_)
        self._positions = positions
        self._list = refused

    def refuse(self, where: BoolArray, reason: DeadLetterReason, detail: str) -> None:
        """Refuses the rows ``where`` it is True, all with these words."""
        for row in np.flatnonzero(where & ~self.refused):
            self.refuse_row(row, reason, detail)

    def refuse_row(self, row: int | np.intp, reason: DeadLetterReason, detail: str) -> None:
        """Refuses one row."""
        self.refused[row] = True
        self._list.append(Refusal(int(self._positions[row]), reason, detail))
