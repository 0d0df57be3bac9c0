"""Keeps the mapped pages of all runs to `state.mapped`.

Each run counts which of its pages may be resident (`runs.mapped_blocks`). When all of them together exceed
the limit, pages go that no look-up has touched since the last time, and where that is not enough those of
whole runs, in turn, until a quarter is free. The pages stay in the page cache as long as the system has room
for them there: the limit bounds what counts as this process's memory.
"""

from __future__ import annotations

from typing import Final

from tidemark.index_assigner.runs.run import Run

_PORTIONS: Final = 16


class MappedPages:
    """``nbytes``: of the mapped pages, at most. ``given_back``: bytes since the process started."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._of_run: dict[Run, int] = {}
        self.nbytes = self.given_back = 0

    @property
    def at_once(self) -> int:
        """Bytes by which the limit is exceeded for a moment: a look-up that needs more maps, and gives back,
        one portion after the other. Example: the first one after a restart, which checks all images.
        """
        return self._bytes_max // _PORTIONS

    def used(self, run: Run) -> None:
        """Counts what a look-up has mapped of the run, and gives back what is too much."""
        self._count(run)
        if self.nbytes <= self._bytes_max:
            return
        for mapped in list(self._of_run):
            self._give_back(mapped, all_of_them=False)
        for mapped in list(self._of_run):
            if self.nbytes <= self._bytes_max * 3 // 4:
                break
            self._give_back(mapped, all_of_them=True)
            # Next time it is the last to go.
            self._of_run[mapped] = self._of_run.pop(mapped)

    def closed(self, run: Run) -> None:
        """Forgets a run whose mapping has ended."""
        self.nbytes -= self._of_run.pop(run, 0)

    def stats(self) -> dict[str, float]:
        """Sizes: name -> value."""
        return {
            "run_mapped_bytes": self.nbytes,
            "run_mapped_bytes_max": self._bytes_max,
            "run_mapped_given_back": self.given_back,
        }

    def _count(self, run: Run) -> None:
        self.nbytes += run.mapped_bytes - self._of_run.get(run, 0)
        self._of_run[run] = run.mapped_bytes

    def _give_back(self, run: Run, all_of_them: bool) -> None:
        before = self.nbytes
        run.give_back_pages(all_of_them)
        self._count(run)
        self.given_back += before - self.nbytes
