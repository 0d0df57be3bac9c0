"""Records at an even pace while something else happens to the table: which part of it each record met, and
how long it waited for its commit.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from bench.commit_watch import CommitWatch
from bench.feeder import SteadyFeeder, Trickle, json_records
from bench.tidemark_process import TOPIC, TidemarkRun
from bench.tidemark_side import percentiles, timed_waits
from bench.workload import Workload

_PIECE_S: Final = 5.0
"""A batch has the records of so many seconds: a large workload takes a tenth of a second to make one."""
_TIMEOUT_S: Final = 900.0


class SteadyFeed:
    """Feeds while it is entered, `rate` records a second. A record belongs to the phase in which it was
    produced, to none between two. `phases`: name -> when it began and ended.
    """

    def __init__(self, run: TidemarkRun, watch: CommitWatch, workload: Workload, rate: float) -> None:
        self._watch, self._workload, self._rate = watch, workload, rate
        self._feeder = SteadyFeeder(run.bootstrap, TOPIC)
        self._fed: list[Trickle] = []
        self._stopped = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._feed, name="steady-feed", daemon=True)
        self.phases: dict[str, Sequence[float]] = {}

    def __enter__(self) -> SteadyFeed:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """What happens in the block is the phase."""
        began_s = time.perf_counter()
        yield
        self.phases[name] = began_s, time.perf_counter()

    def figures(self) -> dict[str, Any]:
        """Phase -> percentiles of the waits. Call it after the end; waits until all is committed."""
        if self._failure is not None:
            raise self._failure
        self._watch.wait_for(self._fed[-1].ends, _TIMEOUT_S)
        commits = self._watch.commits()
        produced_s, waits_s = (
            np.concatenate(some)
            for some in zip(*(timed_waits(trickle, commits) for trickle in self._fed), strict=True)
        )
        return in_phases(self.phases, produced_s, waits_s)

    def _feed(self) -> None:
        try:
            while not self._stopped.is_set():
                rows = self._workload.batch(max(round(self._rate * _PIECE_S), 1))
                self._fed.append(self._feeder.feed(json_records(rows), self._rate))
        except BaseException as error:
            self._failure = error


def in_phases(phases: Mapping[str, Sequence[float]], produced_s: Any, waits_s: Any) -> dict[str, Any]:
    """Phase -> `percentiles` of what was produced in it; of a phase without a record only how many: 0."""
    found: dict[str, Any] = {}
    for name, (began_s, ended_s) in phases.items():
        its_own = waits_s[(produced_s >= began_s) & (produced_s < ended_s)]
        found[name] = percentiles(its_own) if its_own.size else {"records": 0}
    return found
