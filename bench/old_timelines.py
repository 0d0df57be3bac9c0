"""Does a timeline get slower with age? Listing, a start's look, one archive action, with ten thousand and
with ten million archived instants (`make old-timelines`, docs/table-services.md).

Each step's figures are CPU time (of a process of its own, after its imports), and what does not depend on the
machine: files opened, bytes read, names listed. With --assert the exit code is 1, and each figure that grew
is named, unless the largest table's are within the bounds of `growth`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from bench.archived_tables import ROOTS, Shape, by_levels, bytes_per_million, make_table, put_commit
from testing.clock import ManualClock
from testing.counted_storage import CountedStorage, Counts
from testing.ids import SeededIds
from tidemark.commit_coordinator.commit.table_state import Timelines, load_timelines
from tidemark.commit_coordinator.commit.timeline_look import look
from tidemark.epoch_protocol.seen import SeenInstants
from tidemark.epoch_protocol.state import FoldState
from tidemark.hudi_format.publication.port import Term
from tidemark.hudi_format.publication.posix import PosixPublication
from tidemark.hudi_format.publication.tickets import Lease, TermId
from tidemark.hudi_format.replaced_rows import ReplacedRows
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.table_services import archiving
from tidemark.hudi_format.table_services.archive_planning import (
    ArchiveBounds,
    ArchivedName,
    ArchivePlan,
    plan_data_archive,
    plan_metadata_archive,
)
from tidemark.hudi_format.timeline import ArchivedInstant, Instant
from tidemark.hudi_format.timeline.archive_actions import TAIL_BYTES
from tidemark.hudi_format.timeline.archive_rows import encode_archive_file
from tidemark.hudi_format.timeline.identity import judged_instants

REPLACED: Final = "which archived instants replaced groups"
REPLACED_AGAIN: Final = "the same, asked again"
START: Final = "a start's look"
LISTING: Final = "listing both timelines"
ARCHIVAL: Final = "one archive action of each timeline"
LISTING_AFTER: Final = "listing after it"
MS: Final = "CPU ms"
OPENED: Final = "files opened"
BYTES: Final = "bytes read"
LISTED: Final = "names listed"
FILES: Final = "files of the archive"
PEAK: Final = "peak MiB"
_REPEATS: Final = 20
_TIMES: Final = 1.5
_MORE: Final = {MS: 20.0, OPENED: 4.0, BYTES: 64 << 10, LISTED: 200.0}
# A manifest has a line for each file.
_MANIFEST: Final = {OPENED: 0, BYTES: 8 << 10}
_PEAK_MORE_MIB: Final = 16.0

Step = Mapping[str, float]
Figures = dict[str, dict[str, float]]
"""Step -> figure -> value; the process's peak is a step, too."""


def main() -> int:
    """Prints the figures; with --measure, those of one table as JSON."""
    parser = argparse.ArgumentParser(prog="python -m bench.old_timelines", description=__doc__)
    parser.add_argument("--measure", metavar="FOLDER")
    parser.add_argument("--archived", type=int, nargs="*", default=[10_000, 10_000_000])
    parser.add_argument("--folder", help="where the tables are made; a temporary folder by default")
    parser.add_argument("--assert", dest="bounded", action="store_true", help="end with 1 if a figure grew")
    options = parser.parse_args()
    if options.measure:
        sys.stdout.write(json.dumps(measure(Path(options.measure), Shape(by_levels(options.archived[0])))))
        return 0
    folder = Path(options.folder or tempfile.mkdtemp(prefix="tidemark-old-timelines-"))
    try:
        return _compare(folder, sorted(options.archived), options.bounded)
    finally:
        if not options.folder:
            shutil.rmtree(folder, ignore_errors=True)


def _compare(folder: Path, sizes: list[int], bounded: bool) -> int:
    shape = Shape(())
    _say(f"{os.cpu_count()} cores; {shape.active} writes are active, {shape.least} stay\n")
    found = [_measured(folder / str(archived), archived) for archived in sizes]
    for groups in (shape.groups, 2 * shape.groups + 1):
        for name, size in bytes_per_million(groups).items():
            _say(f"{name}: {size / 1e9:.2f} GB per million commits of {groups} file groups\n")
    grown = list(growth(found[0], found[-1])) if bounded else []
    for text in grown:
        _say(f"GREW: {text}\n")
    return 1 if grown else 0


def _measured(table: Path, archived: int) -> Figures:
    make_table(table, Shape(by_levels(archived)))
    size = sum(file.stat().st_size for file in (table / ROOTS[0] / "timeline" / "history").iterdir())
    _say(f"{archived:,} archived, {size / 1e9:.2f} GB for each timeline\n")
    command = ["-m", "bench.old_timelines", "--measure", str(table), "--archived", str(archived)]
    done = subprocess.run([sys.executable, *command], check=True, capture_output=True, text=True)
    figures: Figures = json.loads(done.stdout)
    for name, step in figures.items():
        _say(f"  {name}: " + ", ".join(f"{figure} {value:g}" for figure, value in step.items()) + "\n")
    shutil.rmtree(table)
    return figures


def _say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def growth(small: Mapping[str, Step], large: Mapping[str, Step]) -> Iterator[str]:
    """What a larger archive makes larger than it may be. A figure may be 1.5 times the small archive's and
    20 ms, 64 KiB or 200 names more (a manifest has a line for each file). Four more files may be opened: a
    look reads the footers of files with instants of the last day, and 10 000 commits are three hours. The
    process may take 16 MiB more.

    `REPLACED` asks each file of the archive once, and reads the last 4 KiB of it: archives have some dozens.
    """
    for name, step in large.items():
        for figure, value in step.items():
            before = small[name][figure]
            if figure == PEAK:
                most = before + _PEAK_MORE_MIB
            elif name == REPLACED and figure in (OPENED, BYTES):
                more = step[FILES] - small[name][FILES]
                most = before + more * (1 if figure == OPENED else TAIL_BYTES) + _MANIFEST[figure]
            elif figure != FILES:
                most = before * (1.0 if figure == OPENED else _TIMES) + _MORE[figure]
            else:
                continue
            if value > most:
                yield f"{name}: {figure} {value:g}, {before:g} with the smallest archive, so {most:g} at most"


# ------------------------------------------------------------ the figures


def measure(table: Path, shape: Shape) -> Figures:
    """Of a table of this shape, some of whose active instants are archived meanwhile."""
    encode_archive_file([ArchivedInstant("1", "2", "commit", b"", b"")])  # pyarrow loads what it needs
    storage = CountedStorage(table)
    figures: Figures = {START: _figures(storage, lambda: _start(storage, shape))}
    listings = []
    for number in range(_REPEATS):
        for root in ROOTS:
            put_commit(table, root, shape, shape.archived + shape.active + number)
        listings.append(_figures(storage, lambda: _loaded(storage)))
    figures[LISTING] = sorted(listings, key=lambda step: step[MS])[_REPEATS // 2]
    figures[ARCHIVAL] = _figures(storage, lambda: _archive(storage, shape.least))
    figures[LISTING_AFTER] = _figures(storage, lambda: _loaded(storage))
    # With a storage of which nothing is kept yet.
    anew = CountedStorage(table)
    files, rows = len(archiving.newest_manifest(anew, ROOTS[0]).files), ReplacedRows(anew)
    for step in (REPLACED, REPLACED_AGAIN):
        data = load_timelines(anew).data
        figures[step] = _figures(anew, partial(rows.names, data))
    figures[REPLACED][FILES] = files
    figures["the process"] = {PEAK: _peak_mib()}
    return figures


def _peak_mib() -> float:
    """This process's alone: `ru_maxrss` counts what its parent had when it started this one."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) // 1024


def _figures(storage: CountedStorage, call: Callable[[], object]) -> dict[str, float]:
    counts = storage.counts = Counts()
    begun = time.process_time()
    call()
    return {
        MS: round((time.process_time() - begun) * 1_000, 1),
        OPENED: len(counts.opened),
        BYTES: counts.bytes_read,
        LISTED: counts.listed,
    }


def _loaded(storage: LocalStorage) -> Timelines:
    timelines = load_timelines(storage)
    assert timelines.data.newest_completion()
    assert timelines.metadata.newest_completion()
    return timelines


def _start(storage: LocalStorage, shape: Shape) -> None:
    """What a coordinator asks of the timelines before it serves, but for `REPLACED`: its last look was a
    hundred archived instants ago.
    """
    timelines = load_timelines(storage)
    archive = timelines.data.archive
    assert archive is not None
    start, since = str(timelines.data.first_active), shape.time(shape.archived - 100)
    seen = SeenInstants(start=since)
    seen.add([*judged_instants(timelines.data), *archive.identities(since, start)])
    found = look(storage, timelines, FoldState(seen=seen))
    assert not found.surprises
    assert timelines.completed_at(since) is not None
    timelines.latest_completion()


def _archive(storage: LocalStorage, least: int) -> None:
    publication = PosixPublication(storage, ManualClock(), SeededIds(1))
    term = publication.open_term(TermId(1))
    term.lock.acquire(0)
    lease = term.lock.lease()
    timelines = load_timelines(storage)
    bounds = ArchiveBounds(least=least)
    data = plan_data_archive(
        timelines.data,
        timelines.metadata,
        bounds,
        is_gone=lambda _: True,
        lies_behind=lambda _: False,
        with_logs=frozenset,
    )
    assert data is not None
    _carry_out(storage, term, lease, False, data.instants)
    timelines = load_timelines(storage)
    metadata = plan_metadata_archive(
        timelines.metadata,
        timelines.data,
        bounds,
        in_slices=lambda _: frozenset(),
        under_slices=frozenset,
        with_logs=frozenset,
    )
    assert metadata is not None
    _carry_out(storage, term, lease, True, metadata.instants)


def _carry_out(
    storage: LocalStorage, term: Term, lease: Lease, is_index: bool, instants: tuple[Instant, ...]
) -> None:
    assert len(instants) >= 50
    names = tuple(ArchivedName(name.requested, str(name.completion), name.action.value) for name in instants)
    plan = ArchivePlan(is_index, names)
    archiving.publish_rows(term, plan, lease, storage.delete, lambda _: None)
    assert archiving.delete_instants(storage, plan, storage.delete, lambda _: None, lambda: False)
    assert archiving.delete_superseded(storage, plan.root, storage.delete, lambda: False)


if __name__ == "__main__":
    sys.exit(main())
