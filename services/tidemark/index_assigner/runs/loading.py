"""Loads one shard whole and in order: reads its base file block by block, and writes its run.

A load runs beside look-ups, on a thread of its own (`ThreadedLoads`), or a step at a time wherever its
progress is asked for (`SteppedLoads`: tests, whose order of events is the same each time). It only writes a
file under a temporary name. Whether that file is published is decided on the index's own thread.
"""

from __future__ import annotations

import itertools
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import BinaryIO, Final, Protocol

import numpy as np

from tidemark.hudi_format.errors import CorruptFileError
from tidemark.hudi_format.hfile import HFileReader
from tidemark.index_assigner.domain.key_stretches import stretches, widths_of
from tidemark.index_assigner.domain.locations import Locations
from tidemark.index_assigner.domain.reduce import BoolArray
from tidemark.index_assigner.runs.block_values import BlockValues
from tidemark.index_assigner.runs.directory import RunIdentity
from tidemark.index_assigner.runs.entries import Entries, merged
from tidemark.index_assigner.runs.errors import RunTooLargeError
from tidemark.index_assigner.runs.files import RunFolder
from tidemark.index_assigner.runs.run import RunFile
from tidemark.index_assigner.runs.writing import RunWriter

_ENTRIES_PER_BLOCK: Final = 512
_KEY_BYTES_PER_BLOCK: Final = 1 << 18
_INFLATING_THREADS_MAX: Final = 8
_LOOK_EVERY_S: Final = 0.2


class Load(ABC):
    """One load of a run file.

    ``error``: what ended the load early; None while it goes on, and once the file is whole. ``entries``:
    written so far, of about ``entries_total``; ``size``: their bytes.
    """

    def __init__(self, folder: RunFolder, name: str, bytes_max: int) -> None:
        """``bytes_max``: a larger run is given up."""
        self.name = name
        self._folder, self._bytes_max = folder, bytes_max
        self._parts = self._write()
        self.entries = self.entries_total = self.size = 0
        self.error: Exception | None = None

    def step(self) -> bool:
        """Loads the next part; returns False once the load has ended. After an error, or `cancel`, no file is
        left.
        """
        try:
            return next(self._parts, None) is not None
        except Exception as error:
            # Without its traceback: the frames there have this load, so the two would keep each other, with
            # all that was read for the load, until Python searches for such circles. An assigner does that
            # once in hours, and take-overs that are not worth their work end like this every few seconds.
            self.error = error.with_traceback(None)
            return False

    def cancel(self) -> None:
        """Ends the load, and deletes what it has written. Not while another thread is in `step`."""
        try:
            self._parts.close()
        finally:
            self._folder.discard(self.name)

    def _write(self) -> Generator[int, None, None]:
        file = self._folder.create(self.name)
        try:
            for count, size in self._fill(file):
                self.entries += count
                self.size = size
                if self.size > self._bytes_max:
                    raise RunTooLargeError(self.name, self.size, self.entries)
                yield count
            self._folder.finish(file)
        except BaseException:
            self._folder.give_up(file, self.name)
            raise

    @abstractmethod
    def _fill(self, file: BinaryIO) -> Generator[tuple[int, int], None, None]:
        """Writes the file, and yields after each part its entries and the size so far."""


class RunLoad(Load):
    """Copies a base file. Each `step` reads, decodes and writes about 1 MiB of its content."""

    def __init__(
        self,
        folder: RunFolder,
        name: str,
        identity: RunIdentity,
        open_base: Callable[[], HFileReader],
        check_base: Callable[[], None],
        bytes_max: int,
        wanted: BoolArray | None = None,
    ) -> None:
        """``open_base``: opens the base file. ``check_base`` raises FileMissingError when it is not that file
        any more. ``wanted``: the blocks that are copied; None: all.
        """
        super().__init__(folder, name, bytes_max)
        self._identity, self._open_base, self._check_base = identity, open_base, check_base
        self._wanted = wanted

    def _fill(self, file: BinaryIO) -> Generator[tuple[int, int], None, None]:
        base, locations = self._open_base(), Locations(1)
        values, writer = BlockValues(locations), RunWriter(file, self._identity, locations)
        wanted = np.ones(base.block_count, np.bool_) if self._wanted is None else self._wanted
        self.entries_total = base.entry_count * int(wanted.sum()) // max(base.block_count, 1)
        for stretch, is_wanted in _stretches(wanted):
            if not is_wanted:
                writer.leave_out([base.first_key(number) for number in stretch])
                continue
            for part in base.runs(stretch):
                first_keys = [base.first_key(number) for number in part.numbers]
                places = values.locations(part.content.values, base.schema, base.name)
                writer.add(first_keys, part.content.keys, places, None, part.ends)
                yield len(places), writer.size
        self._check_base()
        if wanted.all() and self.entries != self.entries_total:
            raise CorruptFileError(
                f"{base.name}: {self.entries} entries, but the trailer says {self.entries_total}"
            )
        writer.finish()


def _stretches(wanted: BoolArray) -> Iterator[tuple[range, bool]]:
    """Neighbouring blocks that are all wanted or all not: 1, 1, 0 gives (0 to 1, True), (2, False)."""
    edges = [0, *(np.flatnonzero(np.diff(wanted.astype(np.int8))) + 1).tolist(), len(wanted)]
    for begin, end in itertools.pairwise(edges):
        if end > begin:
            yield range(begin, end), bool(wanted[begin])


class ChangeLoad(Load):
    """Writes a new change run: the newer entries over those of the former one."""

    def __init__(
        self,
        folder: RunFolder,
        name: str,
        identity: RunIdentity,
        newer: Callable[[Locations], Iterator[Entries]],
        former: RunFile | None,
        bytes_max: int,
    ) -> None:
        """``newer``: yields entries in ascending order of their keys; empty ones say that it is still at
        work. ``former``: closed when the load ends.
        """
        super().__init__(folder, name, bytes_max)
        self.identity, self._newer, self._former = identity, newer, former
        self.entries_total = 0 if former is None else former.directory.entries

    def _fill(self, file: BinaryIO) -> Generator[tuple[int, int], None, None]:
        locations = Locations(1)
        writer = RunWriter(file, self.identity, locations)
        for part in merged(self._newer(locations), self._former_entries(locations)):
            blocks = list(stretches(widths_of(part.keys), _ENTRIES_PER_BLOCK, _KEY_BYTES_PER_BLOCK))
            first_keys = [part.keys[first].as_buffer().to_pybytes() for first, _ in blocks]
            ends = [end for _, end in blocks]
            writer.add(first_keys, part.keys, part.locations, part.ordering, ends, part.flags)
            yield len(part), writer.size
        writer.finish()

    def _former_entries(self, locations: Locations) -> Iterator[Entries]:
        if self._former is None:
            return
        is_present = self._former.directory.identity.generation == self.identity.generation
        try:
            for entries in self._former.entries(locations):
                yield entries if is_present else entries.inexact()
        finally:
            self._former.close()


class Loads(Protocol):
    """What works beside look-ups: one load at a time, and threads that inflate blocks for a look-up which has
    to read many.
    """

    @property
    def inflating(self) -> Executor | None:
        """Threads that inflate blocks. None: a look-up inflates them itself."""

    @property
    def is_busy(self) -> bool:
        """Whether a load goes on, or has ended and was not taken."""

    def start(self, load: Load) -> None:
        """Begins a load; call it only when `is_busy` is False."""

    def take_ended(self) -> Load | None:
        """The load that has ended, once."""

    def waiting(self) -> AbstractContextManager[None]:
        """Within it a look-up calls `wait`, so what else the process does may rest."""

    def wait(self) -> bool:
        """Returns when something can be taken, or at once where loads go on by `take_ended`. False: the
        process is told to end, so nobody should wait.
        """

    def end(self) -> None:
        """Gives the load up; soon after that nothing is busy any more, and `take_ended` returns nothing."""

    def close(self) -> None:
        """Gives the load up and waits for its end."""


class SteppedLoads:
    """Each `take_ended` does one step first."""

    inflating: Executor | None = None

    def __init__(
        self,
        waiting: Callable[[], AbstractContextManager[None]] = nullcontext,
        stop: threading.Event | None = None,
    ) -> None:
        """As for `ThreadedLoads`."""
        self.waiting, self._stop = waiting, stop or threading.Event()
        self._load: Load | None = None

    @property
    def is_busy(self) -> bool:
        return self._load is not None

    def start(self, load: Load) -> None:
        self._load = load

    def take_ended(self) -> Load | None:
        load = self._load
        if load is None or load.step():
            return None
        self._load = None
        return load

    def wait(self) -> bool:
        return not self._stop.is_set()

    def end(self) -> None:
        if self._load is not None:
            self._load.cancel()
            self._load = None

    def close(self) -> None:
        self.end()


class ThreadedLoads:
    """A thread for each load. It holds the interpreter's lock for a part of each step only: look-ups go on
    while it reads, inflates and writes. As many threads as there are cores inflate for look-ups; they
    begin with the first look-up that reads many blocks.
    """

    def __init__(
        self,
        waiting: Callable[[], AbstractContextManager[None]] = nullcontext,
        stop: threading.Event | None = None,
    ) -> None:
        """``waiting``: see `Loads.waiting`. ``stop``: is set when the process is told to end."""
        self.waiting, self._stop = waiting, stop or threading.Event()
        threads = min(os.cpu_count() or 1, _INFLATING_THREADS_MAX)
        self._inflating = ThreadPoolExecutor(threads, thread_name_prefix="inflating")
        self._load: Load | None = None
        self._thread: threading.Thread | None = None
        self._given_up = threading.Event()

    @property
    def inflating(self) -> Executor | None:
        return self._inflating

    @property
    def is_busy(self) -> bool:
        if self._given_up.is_set():
            self.take_ended()
        return self._load is not None

    def start(self, load: Load) -> None:
        self._load, self._given_up = load, threading.Event()
        self._thread = threading.Thread(
            target=_run, args=(load, self._given_up), name="run-loader", daemon=True
        )
        self._thread.start()

    def take_ended(self) -> Load | None:
        if self._thread is None or self._thread.is_alive():
            return None
        load, self._load, self._thread = self._load, None, None
        if load is not None and self._given_up.is_set():
            load.cancel()
            return None
        return load

    def wait(self) -> bool:
        while self._thread is not None and self._thread.is_alive() and not self._stop.is_set():
            self._thread.join(_LOOK_EVERY_S)
        return not self._stop.is_set()

    def end(self) -> None:
        self._given_up.set()

    def close(self) -> None:
        self.end()
        self._inflating.shutdown(cancel_futures=True)
        if self._thread is not None:
            self._thread.join()
        self.take_ended()


def _run(load: Load, given_up: threading.Event) -> None:
    while not given_up.is_set() and load.step():
        pass
