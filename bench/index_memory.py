"""Memory of the index over its life, in a process of its own: anonymous resident memory (RssAnon, read every
second) while it loads its run files, promotes full epochs, is opened again after a compaction of the metadata
table, and takes over the entries of two former owners that no epoch has committed.

    python -m bench.index_memory [--keys 1000000] [--shards 8] [--memory-mib 512] [--mapped-mib 1024]

Epochs are of keys that are looked up first, as tagging does: nine in ten are in the table (``--inserts``),
all get an ordering value. Two owners, one after the other, fill the uncommitted tier together: the second
takes over what the first one left. What both tagged lies in files, as in the topic for index entries; whoever
takes it over reads so much at a time as `LaneOpener` does, but no Kafka, and loads it.

The same is done again in a control group of --group-mib (768), where one can be made: then the mapped pages
of run files are charged to it, too, and only that the run goes on, and how fast, is new there.

Ends with code 1 when the memory exceeds ``state.memory`` and 150 MiB, in the group as well, or the run does
not go on there.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from time import process_time
from typing import Final

import numpy as np
import numpy.typing as npt

from bench.anonymous_memory import AnonymousMemory, anonymous_bytes
from bench.index_keys import CHOICES, KEYS
from bench.index_lookups import IndexBench
from bench.index_tables import FILE_GROUPS, compact_again, make_table_apart
from bench.taken_rows import TakenRows
from tidemark.hudi_format.metadata_table import MetadataTableSnapshot
from tidemark.index_assigner.index.limits import IndexLimits
from tidemark.index_assigner.index.tiered import TieredIndex
from tidemark.stream_runtime.allocator import give_memory_back, use_system_allocator

_MIB: Final = 1 << 20
_GROUPS: Final = Path("/sys/fs/cgroup/memory")
_EPOCHS: Final = 3
_SPARE_MIB: Final = 150
_LOOKED_UP: Final = 1_000_000
_RSS_FILE: Final = re.compile(r"^RssFile:\s+(\d+) kB$", re.MULTILINE)


def main() -> None:
    """Makes the table, then starts a process for each measurement."""
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = arguments.add_argument
    add("--keys", type=int, default=1_000_000, help="keys of the table")
    add("--shards", type=int, default=8, help="shards of the record index")
    add("--batch", type=int, default=100_000, help="keys of a tagged transaction")
    add("--memory-mib", type=int, default=512, help="state.memory of the index")
    add("--mapped-mib", type=int, default=1_024, help="state.mapped of the index")
    add("--group-mib", type=int, default=768, help="memory of the control group; 0: without one")
    add("--kind", choices=list(KEYS), default="sequential", help="what the keys look like")
    add("--inserts", type=float, default=0.1, help="share of an epoch's keys that are new")
    add("--choice", choices=list(CHOICES), default="uniform", help="which keys an epoch updates")
    add("--file-groups", type=int, default=FILE_GROUPS, help="file groups that the index names")
    add("--partitions", type=int, default=1, help="partitions of the table that they lie in")
    add("--folder", type=Path, help=argparse.SUPPRESS)
    chosen = arguments.parse_args()
    if chosen.folder is not None:
        use_system_allocator()
        _Life(chosen).run()
        return
    folder = Path(tempfile.mkdtemp(prefix="tidemark-index-memory-"))
    try:
        sizes = (chosen.keys, chosen.shards, chosen.file_groups, chosen.partitions)
        make_table_apart(folder / "table", chosen.kind, *sizes)
        command = [sys.executable, "-m", "bench.index_memory", *sys.argv[1:], "--folder", str(folder)]
        print("without a control group", flush=True)
        codes = [subprocess.run(command, check=False).returncode]
        if chosen.group_mib:
            codes.append(_in_group(command, folder, chosen.group_mib))
    finally:
        shutil.rmtree(folder)
    if any(codes):
        raise SystemExit(1)


def check_bound(peak: int, memory: int) -> None:
    """Says whether the greatest anonymous memory is within ``state.memory`` and what a process takes besides;
    ends the process with code 1 where it is not. Both in bytes.
    """
    bound = memory + _SPARE_MIB * _MIB
    said = "within" if peak <= bound else "ABOVE"
    print(
        f"  RssAnon at most {peak / _MIB:.0f} MiB: {said} state.memory + {_SPARE_MIB} MiB = "
        f"{bound / _MIB:.0f} MiB",
        flush=True,
    )
    if peak > bound:
        raise SystemExit(1)


def _in_group(command: list[str], folder: Path, size_mib: int) -> int:
    """Returns the code with which the command ended; 0 where no group can be made."""
    group = _GROUPS / f"tidemark-bench-{os.getpid()}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(size_mib * _MIB))
    except OSError as error:
        print(f"no control group can be made here ({error}): left out")
        with contextlib.suppress(OSError):
            group.rmdir()
        return 0
    for state in folder.glob("rocks*"):
        shutil.rmtree(state, ignore_errors=True)
    print(f"in a control group of {size_mib} MiB", flush=True)
    try:
        inside = f'echo $$ > {group}/cgroup.procs && exec "$@"'
        done = subprocess.run(["/bin/sh", "-c", inside, "sh", *command], check=False)
        most = int((group / "memory.max_usage_in_bytes").read_text()) / _MIB
        print(f"  ended with code {done.returncode}; the group held at most {most:.0f} MiB, with page cache")
        return done.returncode
    finally:
        group.rmdir()


class _Life(IndexBench):
    """One index from its cold start to its takeover."""

    def __init__(self, chosen: argparse.Namespace) -> None:
        super().__init__(
            chosen.folder,
            chosen.keys,
            chosen.batch,
            chosen.shards,
            chosen.memory_mib * _MIB,
            kind=chosen.kind,
            choice=chosen.choice,
            updated=1 - chosen.inserts,
            groups=chosen.file_groups,
            partitions=chosen.partitions,
        )
        self.limits = IndexLimits(self.memory, 100 << 30, chosen.mapped_mib * _MIB)
        self.new_keys, self.ordered = chosen.keys, True
        self.offset = self.staged = 0
        self.taken_rows = TakenRows(self.folder / "rows")

    def run(self) -> None:
        self._conditions()
        print(f"  RssAnon {anonymous_bytes() / _MIB:.0f} MiB before the index is opened")
        with AnonymousMemory() as memory:
            self._own()
            self._next_process()
            self._own_second()
            self._next_process()
            self._inherit()
        check_bound(memory.peak, self.limits.memory_bytes)

    def _next_process(self) -> None:
        """An heir is another process: what the former owner held in memory does not count as the heir's."""
        gc.collect()
        give_memory_back()

    def _own(self) -> None:
        index = self._index()
        self._phase("load, with look-ups beside it", lambda: self._load(index))
        self._phase(f"{_EPOCHS} full epochs promoted", lambda: self._promote(index))
        compact_again(self.folder / "table", self.shards)
        self._phase("compacted, opened again, an epoch", lambda: self._open_again(index))
        half = self.limits.uncommitted // 2
        self._phase("filled to a half by its owner", lambda: self._fill(index, half, self.taken_rows))
        self._close(index)

    def _own_second(self) -> None:
        second = self._index()
        self._phase("a second owner takes that over", lambda: self._take_over(second))
        whole = self.limits.uncommitted
        self._phase("… and fills the other half", lambda: self._fill(second, whole, self.taken_rows))
        self._close(second)

    def _inherit(self) -> None:
        heir = self._index()
        self._phase("an heir takes both over", lambda: self._take_over(heir))
        self._phase("… and promotes them", lambda: self._promote_taken(heir))
        self._phase("… and a full epoch of its own", lambda: self._promote(heir, 1))
        self._phase("look-ups, a million keys", lambda: self._look(heir))
        self._close(heir)

    def _take_over(self, index: TieredIndex) -> None:
        rows = self.taken_rows.load(index)
        taken, size = self.taken_rows, index.uncommitted_memory()
        print(
            f"    {rows} rows of {taken.owners} owners, {taken.nbytes / _MIB:.0f} MiB, read in "
            f"{taken.chunks} parts: {index.uncommitted_entries()} entries, {size / _MIB:.0f} MiB",
            flush=True,
        )

    def _promote_taken(self, index: TieredIndex) -> None:
        index.promote(self.offset, None, self.offset)
        give_memory_back()

    def _phase(self, what: str, act: Callable[[], object]) -> None:
        started_s, used, before = self.clock.monotonic_s(), process_time(), self.staged
        with AnonymousMemory() as memory:
            act()
        seconds, cpu_s = self.clock.monotonic_s() - started_s, process_time() - used
        keys = f", {self.staged - before} keys" if self.staged > before else ""
        print(
            f"  {what:<34} {seconds:6.1f} s ({cpu_s:.1f} CPU s), RssAnon at most "
            f"{memory.peak / _MIB:5.0f} MiB, RssFile {_file_bytes() / _MIB:5.0f} MiB{keys}",
            flush=True,
        )

    def _load(self, index: TieredIndex) -> None:
        index.warm(start=True)
        while index.warm(start=False).left:
            index.lookup(0, *self._some())

    def _open_again(self, index: TieredIndex) -> None:
        index.rewind()
        index.open_lane(0, MetadataTableSnapshot.load(self.storage))
        self._promote(index, 1)

    def _look(self, index: TieredIndex) -> None:
        for _ in range(_LOOKED_UP // self.batch):
            index.lookup(0, *self._some())

    def _promote(self, index: TieredIndex, epochs: int = _EPOCHS) -> None:
        for _ in range(epochs):
            self._fill(index)
            index.promote(self.offset, None, self.offset)
            give_memory_back()

    def _fill(self, index: TieredIndex, limit: int | None = None, left: TakenRows | None = None) -> None:
        """Looks keys up and stages them, until the uncommitted tier is full, or has ``limit`` bytes.

        ``left``: gets the rows of what was staged.
        """
        limit = self.limits.uncommitted if limit is None else limit
        if left is not None:
            left.owners += 1
        for numbers in self._upserts():
            batch = self._batch_of(numbers)
            before = index.uncommitted_memory()
            index.lookup(0, *batch)
            index.stage(0, self._changes(*batch, ordering=self.offset + 1))
            self.staged += len(numbers)
            self.offset += 1
            index.counted([0], self.offset)
            if left is not None:
                left.add(self.offset, *batch)
            if 2 * index.uncommitted_memory() - before > limit:
                return

    def _upserts(self) -> Iterator[npt.NDArray[np.int64]]:
        """The numbers of a batch's keys, without end."""
        known = round(self.batch * self.updated)
        while True:
            new = np.arange(self.new_keys, self.new_keys + self.batch - known, dtype=np.int64)
            self.new_keys += len(new)
            yield np.concatenate([CHOICES[self.choice](self.random, self.count, known), new]) * 2


def _file_bytes() -> int:
    found = _RSS_FILE.search(Path("/proc/self/status").read_text(encoding="ascii"))
    return int(found[1]) << 10 if found is not None else 0


if __name__ == "__main__":
    main()
