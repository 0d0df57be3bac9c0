"""What finding former values for a secondary index costs the tasks of an epoch, by the size of the slices.

    python -m bench.former_values --slices 64 --rows 1000000 --keys 10000

One process does the work of an epoch's data tasks and of the tasks of the index: log files of a MERGE_ON_READ
table on a local disk, without Kafka, Spark and coordinator. Each epoch updates random keys of all slices, and
adds a log file to each. Its CPU seconds without the index are those of making the log files, which belong to
no slice then; with it of finding former values, and of making the log files of the index, too. The files that
workers share are made in the first epoch. Two workers take turns, as if Spark had given the tasks to another
one each time. `--kept 0`: nothing is kept.
"""

from __future__ import annotations

import argparse
import statistics
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from bench.conditions import conditions, load_average
from bench.whole_run import command_line, report, say
from bench.workload import key_text
from tidemark.epoch_protocol.kept_indexes import KeptSecondary
from tidemark.hudi_format.file_group.base_file import attach_meta_columns, write_base_file
from tidemark.hudi_format.file_group.changes import Deletes
from tidemark.hudi_format.file_group.kept_tables import KeptFolder
from tidemark.hudi_format.file_group.log_blocks import data_log_bytes
from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.file_group.value_changes import SliceMerge
from tidemark.hudi_format.metadata_table.partitions.secondary_index import SecondaryIndexPartition
from tidemark.hudi_format.model import ShardId
from tidemark.hudi_format.ordering import OrderingField
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.table_config import MergeMode
from tidemark.stream_writer.packed_rows import unpacked
from tidemark.stream_writer.secondary_task import SecondaryEntries, reduced

_SCHEMA: Final = TableSchema.from_arrow(
    "former", pa.schema([("id", pa.string()), ("region", pa.string()), ("ts", pa.int64())])
)
_ORDERING: Final = OrderingField.of(_SCHEMA, "ts")
_MODE: Final = MergeMode.EVENT_TIME_ORDERING
_INDEX: Final = KeptSecondary("secondary_index_by_ts", "ts", 2)
_REGION: Final = "p"


@dataclass
class Slice:
    """A file group: its files, and the numbers of its keys."""

    files: FileSlice
    first_key: int
    rows: int


class Table:
    """Slices of base files alone, to which `epoch` adds log files."""

    def __init__(self, folder: Path, slices: int, rows: int, seed: int) -> None:
        self._storage = LocalStorage(folder)
        self._random = np.random.default_rng(seed)
        self.slices = [self._slice(number, rows) for number in range(slices)]

    def epoch(self, number: int, keys: int, kept: KeptFolder | None) -> float:
        """Updates random keys; returns CPU seconds. `kept`: the index is kept too; None: no index."""
        of_slices = self._random.multinomial(keys, [1 / len(self.slices)] * len(self.slices))
        work = [
            (each, self._rows(each, count, number))
            for each, count in zip(self.slices, of_slices, strict=True)
            if count
        ]
        began_s = time.process_time()
        columns = [] if kept is None else [_INDEX]
        entries = SecondaryEntries(columns)
        for each, rows in work:
            name = f".{each.files.file_id}_{_instant(number)}.log.1_0-0-0"
            if kept is not None:
                merge = SliceMerge(self._storage, _SCHEMA, _MODE, _ORDERING, [_INDEX.column], kept)
                entries.add(merge.rows_logged(each.files, rows, Deletes.none(), f"{_REGION}/{name}"))
            self._storage.create(
                f"{_REGION}/{name}", data_log_bytes(_SCHEMA, _instant(number), rows, None, _REGION, _ORDERING)
            )
            if kept is not None:
                each.files = replace(each.files, log_files=(*each.files.log_files, name))
        self._write_index(entries, number)
        return time.process_time() - began_s

    def _write_index(self, entries: SecondaryEntries, number: int) -> None:
        for part in entries.packed():
            changes = reduced([unpacked(part.changes)])
            partition = SecondaryIndexPartition(part.index)
            log, data = partition.log_file(changes, _instant(number), ShardId(part.group))
            self._storage.create(log.path, data)

    def _slice(self, number: int, rows: int) -> Slice:
        file_id = f"{uuid.UUID(int=number + 1, version=4)}-0"
        name = f"{file_id}_0-0-0_{_instant(0)}.parquet"
        made = Slice(FileSlice(_REGION, file_id, name, _instant(0)), number * rows, rows)
        stored = self._stored(made, np.arange(rows), 0, name)
        self._storage.create(f"{_REGION}/{name}", write_base_file(stored, _SCHEMA))
        return made

    def _rows(self, of: Slice, count: int, number: int) -> pa.Table:
        chosen = self._random.choice(of.rows, min(count, of.rows), replace=False)
        return self._stored(of, chosen, number, of.files.file_id)

    def _stored(self, of: Slice, numbers: Any, commit: int, name: str) -> pa.Table:
        keys = key_text(numbers + of.first_key)
        count = len(numbers)
        values = commit * 1_000_000_000 + self._random.integers(0, 1_000_000_000, count)
        user = pa.table([keys, pa.repeat(_REGION, count), pa.array(values)], names=["id", "region", "ts"])
        return attach_meta_columns(user, keys, _REGION, _instant(commit), 0, name)


def _instant(number: int) -> str:
    return f"20260101{number:09d}"


def measure(options: argparse.Namespace, work: Path) -> dict[str, Any]:
    """Epochs without and with the index, in turn; returns the report."""
    found: dict[str, Any] = {"conditions": conditions(), "options": vars(options) | {"work": "", "out": ""}}
    table = Table(work, options.slices, options.rows, options.seed)
    say(f"{options.slices} slices of {options.rows} rows are made")
    workers = [KeptFolder(work / "kept") for _ in range(2)]
    off_s, on_s = [], []
    for round_number in range(options.epochs):
        off_s.append(round(table.epoch(2 * round_number + 1, options.keys, None), 3))
        kept = workers[round_number % len(workers)]
        kept.next_round(round_number, options.kept << 20)
        on_s.append(round(table.epoch(2 * round_number + 2, options.keys, kept), 3))
        say(f"without {off_s[-1]} CPU s, with {on_s[-1]} CPU s")
    size = sum(path.stat().st_size for path in (work / "kept").glob("*"))
    return {**found, "off_s": off_s, "on_s": on_s, "kept_bytes": size, "load_after": load_average()}


def lines(found: dict[str, Any]) -> Iterator[str]:
    """The report as text."""
    options, later = found["options"], slice(2, None)
    yield f"{found['conditions']}; load after it {found['load_after']}"
    yield f"{options['slices']} slices of {options['rows']} rows, {options['keys']} keys an epoch"
    yield f"first epoch with the index {found['on_s'][0]} CPU s; {found['kept_bytes'] >> 20} MiB are kept"
    medians = [statistics.median(found[name][later]) for name in ("off_s", "on_s")]
    yield f"medians of the {options['epochs'] - 2} last: {medians[0]:.3f} -> {medians[1]:.3f} CPU s"


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = command_line("former_values", __doc__)
    add = parser.add_argument
    add("--slices", type=int, default=64)
    add("--rows", type=int, default=1_000_000, help="rows of a slice")
    add("--keys", type=int, default=10_000, help="keys of an epoch")
    add("--epochs", type=int, default=12, help="without and with the index: so many of each")
    add("--kept", type=int, default=4_096, help="MiB that workers may keep")
    add("--seed", type=int, default=17452)
    return parser.parse_args(argv)


def main() -> None:
    report("former-values", parse_arguments(), measure, lines)


if __name__ == "__main__":
    main()
