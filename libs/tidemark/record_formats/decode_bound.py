"""A time limit for decoding that also works when the hanging code is C and holds the interpreter's lock.

Python's fault handler has a thread of its own that does not need that lock. When the time is over it writes
all threads' tracebacks to stderr and ends the process. The coordinator counts this as a death of the lane's
reader (`commit_coordinator.domain.reader_deaths`). After two, the next owner reads the lane in a child
process, which finds the record.
"""

from __future__ import annotations

import faulthandler
import sys
import threading
from types import TracebackType
from typing import Final

from tidemark.stream_runtime.clock import Clock, SystemClock

DECODE_S: Final = 300.0
"""Seconds for one batch. A batch of 4 MiB takes a fraction of a second; a registry, or a busy machine, much
more.
"""


class DecodeBound:
    """A context manager around the decoding of each batch. Several threads may be in it at a time.

    A process may have only one (`DECODING`), because the fault handler has one timer: it is set to the
    earliest end.
    """

    def __init__(self, clock: Clock, limit_s: float = DECODE_S) -> None:
        self._clock = clock
        self._limit_s = limit_s
        self._lock = threading.Lock()
        self._ends_s: dict[int, float] = {}

    def __enter__(self) -> None:
        with self._lock:
            self._ends_s[threading.get_ident()] = self._clock.monotonic_s() + self._limit_s
            self._set()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._ends_s.pop(threading.get_ident(), None)
            self._set()

    def _set(self) -> None:
        where = sys.__stderr__
        if where is None:
            return
        if not self._ends_s:
            faulthandler.cancel_dump_traceback_later()
            return
        left_s = max(min(self._ends_s.values()) - self._clock.monotonic_s(), 0.001)
        faulthandler.dump_traceback_later(left_s, exit=True, file=where)


DECODING: Final = DecodeBound(SystemClock())
"""The one limit of this process."""
