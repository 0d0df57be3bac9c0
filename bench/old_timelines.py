"""Does a timeline get slower with age? Listing, a start's look, one archive action, with ten thousand and
with ten million archived instants (`make old-timelines`, docs/table-services.md).

The archive is made in Hudi's form, by levels as years of archiving leave them: files of 300, 3 000, 30 000
and 300 000 rows. Its rows have short contents, so that ten million fit on a disk. How many bytes rows with
real contents take is measured beside. Each figure is CPU time of a process of its own, after its imports.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import BinaryIO, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from testing.clock import ManualClock
from testing.ids import SeededIds
from tidemark.commit_coordinator.commit.table_state import load_timelines
from tidemark.commit_coordinator.commit.timeline_look import look
from tidemark.epoch_protocol.seen import SeenInstants
from tidemark.epoch_protocol.state import FoldState
from tidemark.hudi_format.publication.posix import PosixPublication
from tidemark.hudi_format.publication.tickets import TermId
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
from tidemark.hudi_format.timeline import DATA_ROOT, METADATA_TABLE_ROOT, ArchivedInstant, Instant
from tidemark.hudi_format.timeline.archive_files import ArchiveFile, Manifest, data_file_name
from tidemark.hudi_format.timeline.archive_rows import (
    GROUP_ROWS_MAX,
    SCHEMA,
    archive_file_writer,
    encode_archive_file,
)
from tidemark.hudi_format.timeline.avro_records import (
    CommitMetadata,
    WriteStat,
    encode_commit_metadata,
    group_stats,
)
from tidemark.hudi_format.timeline.identity import judged_instants

ROOTS: Final = (DATA_ROOT, METADATA_TABLE_ROOT)
ACTIVE: Final = 600
LEAST: Final = 300
LEVELS: Final = (300_000, 30_000, 3_000, 300)
_BEGIN: Final = datetime(2026, 1, 1, tzinfo=UTC)
_FILE_GROUPS: Final = 8
_SAMPLE: Final = 6_000
_REPEATS: Final = 20


def main() -> int:
    """Prints the figures; with --measure, those of one table as JSON."""
    parser = argparse.ArgumentParser(prog="python -m bench.old_timelines", description=__doc__)
    parser.add_argument("--measure", metavar="FOLDER")
    parser.add_argument("--archived", type=int, nargs="*", default=[10_000, 10_000_000])
    parser.add_argument("--folder", help="where the tables are made; a temporary folder by default")
    options = parser.parse_args()
    if options.measure:
        sys.stdout.write(json.dumps(_measure(Path(options.measure))))
        return 0
    folder = Path(options.folder or tempfile.mkdtemp(prefix="tidemark-old-timelines-"))
    try:
        _say(f"{os.cpu_count()} cores; {ACTIVE} writes are active, {LEAST} stay; CPU milliseconds\n")
        for archived in options.archived:
            table = folder / str(archived)
            make_table(table, archived)
            done = subprocess.run(
                [sys.executable, "-m", "bench.old_timelines", "--measure", str(table)],
                check=True,
                capture_output=True,
                text=True,
            )
            figures = ", ".join(f"{name} {value:g}" for name, value in json.loads(done.stdout).items())
            _say(f"{archived:>12,} archived: {figures}\n")
            shutil.rmtree(table)
        for groups in (_FILE_GROUPS, 2 * _FILE_GROUPS + 1):
            for name, size in bytes_per_million(groups).items():
                _say(f"{name}: {size / 1e9:.2f} GB per million commits of {groups} file groups\n")
    finally:
        if not options.folder:
            shutil.rmtree(folder, ignore_errors=True)
    return 0


def _say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


# ------------------------------------------------------------ the table


def _time(second: int, milliseconds: int) -> str:
    return f"{_BEGIN + timedelta(seconds=second):%Y%m%d%H%M%S}{milliseconds:03d}"


def make_table(table: Path, archived: int) -> None:
    """Both timelines with so many archived commits, one a second, and `ACTIVE` active ones behind them."""
    history = table / DATA_ROOT / "timeline" / "history"
    history.mkdir(parents=True)
    files: list[ArchiveFile] = []
    at = 0
    while at < archived:
        # The older, the higher: of the last levels some files wait for their merge.
        level = next(
            n for n, rows in enumerate(LEVELS) if at + rows * (1 + (n < 3) * 2) <= archived or n == 3
        )
        rows = min(LEVELS[level], archived - at)
        name = data_file_name(_time(at, 123), _time(at + rows - 1, 123), len(LEVELS) - 1 - level)
        with (history / name).open("wb") as file:
            _write_short_rows(file, at, rows)
        files.append(ArchiveFile(name, (history / name).stat().st_size))
        at += rows
    (history / "manifest_1").write_bytes(Manifest(1, tuple(files)).encode())
    (history / "_version_").write_bytes(b"1")
    shutil.copytree(history, table / METADATA_TABLE_ROOT / "timeline" / "history", copy_function=os.link)
    for root in ROOTS:
        for second in range(archived, archived + ACTIVE):
            put_commit(table, root, second)
    # The metadata table was compacted a moment ago: nothing else holds archival back.
    compacted = archived + ACTIVE - LEAST // 2
    folder = table / METADATA_TABLE_ROOT / "timeline"
    for name in ("compaction.requested", "compaction.inflight"):
        (folder / f"{_time(compacted, 900)}.{name}").write_bytes(b"")
    (folder / f"{_time(compacted, 900)}_{_time(compacted, 950)}.commit").write_bytes(b"")


def _write_short_rows(file: BinaryIO, first: int, count: int) -> None:
    """A deltacommit a second; every 300 seconds a clean."""
    with archive_file_writer(file) as writer:
        for at in range(first, first + count, GROUP_ROWS_MAX):
            seconds = np.arange(at, min(at + GROUP_ROWS_MAX, first + count))
            actions = np.where(seconds % 300 == 7, "clean", "deltacommit")
            texts = pa.array(np.datetime64(_BEGIN.replace(tzinfo=None), "s") + seconds)
            stamps = pc.strftime(texts, format="%Y%m%d%H%M%S")
            columns = [
                pc.binary_join_element_wise(stamps, "123", ""),
                pc.binary_join_element_wise(stamps, "456", ""),
                pa.array(actions),
                pa.array([b"{}"] * len(seconds), pa.binary()),
                pa.nulls(len(seconds), pa.binary()),
                pa.array(np.ones(len(seconds), np.int32)),
            ]
            writer.write_table(pa.table(columns, schema=SCHEMA))


def put_commit(table: Path, root: str, second: int) -> None:
    """The three files of a deltacommit."""
    folder, requested = table / root / "timeline", _time(second, 123)
    (folder / f"{requested}.deltacommit.requested").write_bytes(b"")
    (folder / f"{requested}.deltacommit.inflight").write_bytes(b"")
    (folder / f"{requested}_{_time(second, 456)}.deltacommit").write_bytes(_content(second))


def _content(second: int, groups: int = _FILE_GROUPS) -> bytes:
    """What a commit into so many file groups says."""
    requested, chance = _time(second, 123), random.Random(second)
    stats = []
    for number in range(groups):
        file_id = f"{number:08x}-1c2d-4e5f-8a9b-0123456789ab-0"
        name = f".{file_id}_{requested}.log.1_{number}-0-0"
        stats.append(
            WriteStat(
                file_id=file_id,
                partition_path=f"day={number % 2}",
                path=f"day={number % 2}/{name}",
                prev_commit=_time(second - second % 40 - 40, 123),
                num_writes=chance.randrange(500, 800),
                num_update_writes=chance.randrange(300, 500),
                num_inserts=chance.randrange(100, 200),
                total_write_bytes=(size := chance.randrange(30_000, 60_000)),
                file_size_in_bytes=size,
                base_file=f"{file_id}_{number}-0-0_{_time(second - second % 40 - 40, 123)}.parquet",
                log_files=(name,),
            )
        )
    extra = {
        "schema": '{"type":"record","name":"r","fields":[{"name":"id","type":"string"}]}',
        "tidemark.epoch": str(second),
        "tidemark.through": str(second * 17 + chance.randrange(17)),
        "tidemark.generation": "3",
    }
    return encode_commit_metadata(CommitMetadata(write_stats=group_stats(stats), extra_metadata=extra))


def bytes_per_million(groups: int) -> dict[str, float]:
    """Bytes of the archive's files per million commits whose contents are real."""
    rows = [
        ArchivedInstant(_time(second, 123), _time(second, 456), "deltacommit", _content(second, groups), b"")
        for second in range(_SAMPLE)
    ]
    small = sum(len(encode_archive_file(rows[at : at + 300])) for at in range(0, _SAMPLE, 300))
    scale = 1_000_000 / _SAMPLE
    return {
        "contents": sum(len(row.metadata) for row in rows) * scale,
        "archive, files of 300 instants": small * scale,
        "archive, merged": len(encode_archive_file(rows)) * scale,
    }


# ------------------------------------------------------------ the figures


def _measure(table: Path) -> dict[str, float]:
    encode_archive_file([ArchivedInstant("1", "2", "commit", b"", b"")])  # pyarrow loads what it needs
    figures: dict[str, float] = {}
    storage = LocalStorage(table)
    figures["a start's look"] = _cpu_ms(lambda: _start(LocalStorage(table)))
    data, _ = _loaded(storage)
    archived = int((_parsed(str(data.first_active)) - _BEGIN).total_seconds())
    listings = []
    for second in range(_REPEATS):
        for root in ROOTS:
            put_commit(table, root, archived + ACTIVE + second)
        listings.append(_cpu_ms(lambda: _loaded(storage)))
    figures["listing both timelines"] = median(listings)
    figures["one archive action of each timeline"] = _cpu_ms(lambda: _archive(storage))
    figures["listing after it"] = _cpu_ms(lambda: _loaded(storage))
    figures["peak MiB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return figures


def _cpu_ms(call: Callable[[], object]) -> float:
    begun = time.process_time()
    call()
    return round((time.process_time() - begun) * 1_000, 1)


def _loaded(storage: LocalStorage):
    timelines = load_timelines(storage)
    assert timelines.data.newest_completion()
    assert timelines.metadata.newest_completion()
    return timelines.data, timelines.metadata


def _start(storage: LocalStorage) -> None:
    """What a coordinator asks of the timelines before it serves: its last look was a hundred archived
    instants ago.
    """
    timelines = load_timelines(storage)
    archive = timelines.data.archive
    assert archive is not None
    start = str(timelines.data.first_active)
    since = _time(int((_parsed(start) - _BEGIN).total_seconds()) - 100, 123)
    seen = SeenInstants(start=since)
    seen.add([*judged_instants(timelines.data), *archive.identities(since, start)])
    found = look(storage, timelines, FoldState(seen=seen))
    assert not found.surprises
    assert timelines.completed_at(since) is not None
    assert not ReplacedRows(storage).names(timelines.data)
    timelines.latest_completion()


def _parsed(requested: str) -> datetime:
    return datetime.strptime(requested[:14], "%Y%m%d%H%M%S").replace(tzinfo=UTC)


def _archive(storage: LocalStorage) -> None:
    publication = PosixPublication(storage, ManualClock(), SeededIds(1))
    term = publication.open_term(TermId(1))
    term.lock.acquire(0)
    lease = term.lock.lease()
    timelines = load_timelines(storage)
    bounds = ArchiveBounds(least=LEAST)
    data = plan_data_archive(
        timelines.data, timelines.metadata, bounds, is_gone=lambda _: True, with_logs=frozenset
    )
    _carry_out(storage, term, lease, False, data.instants)
    timelines = load_timelines(storage)
    metadata = plan_metadata_archive(
        timelines.metadata, timelines.data, bounds, in_slices=lambda _: frozenset(), with_logs=frozenset
    )
    _carry_out(storage, term, lease, True, metadata.instants)


def _carry_out(storage, term, lease, is_index: bool, instants: tuple[Instant, ...]) -> None:
    assert len(instants) >= 100
    names = tuple(ArchivedName(each.requested, str(each.completion), each.action.value) for each in instants)
    plan = ArchivePlan(is_index, names)
    archiving.publish_rows(term, plan, lease, storage.delete, lambda _: None)
    assert archiving.delete_instants(storage, plan, storage.delete, lambda _: None, lambda: False)
    assert archiving.delete_superseded(storage, plan.root, storage.delete, lambda: False)


if __name__ == "__main__":
    sys.exit(main())
