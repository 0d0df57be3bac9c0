"""What a scan reads of slices that got log files; it comes to the entries that a new scan comes to."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from testing.counted_storage import CountedStorage, Counts
from tests.unit.commit_coordinator.table_services.story import ARROW, SCHEMA, Story
from tidemark.epoch_protocol.service_entries import ServiceKind
from tidemark.hudi_format import secondary_index_scan
from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.secondary_index_scan import SecondaryIndexScan
from tidemark.hudi_format.secondary_slices import RowEntries
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.table_config import TableType, read_table_config

KEYS = 24
HELD_BYTES = 1 << 20


class FewNames(Story):
    """Rows share their names, and come late now and then."""

    def named(self, n: int) -> str:
        return f"v{(n + self.commits) % 5}"

    def late(self, n: int) -> None:
        """A row that is older than all that was written of its key."""
        region = ("eu", "us")[n % 2]
        row = {"id": f"k{n}", "region": region, "ts": 0, "name": "late"}
        self.writer.commit(pa.Table.from_pylist([row], ARROW))
        self.live.setdefault(f"k{n}", (region, 0, "late"))
        self.pass_by(1.0)


def scan_of(storage: Storage, scratch: Path) -> SecondaryIndexScan:
    scratch.mkdir()
    config = read_table_config(LocalStorage(Path(storage.base_uri)))
    return SecondaryIndexScan(storage, config, SCHEMA, "name", scratch, HELD_BYTES)


def entries_of(scan: SecondaryIndexScan) -> list[str]:
    return sorted(
        key for some in scan.entries_read(lambda: None) for key in some.keys.cast(pa.string()).to_pylist()
    )


def step(story: FewNames, dice: random.Random) -> None:
    """One write, or an action of a service."""
    drawn, live = dice.random(), sorted(int(key[1:]) for key in story.live)
    some: Sequence[int] = dice.sample(range(KEYS), 4)
    if drawn < 0.1:
        story.served.list_files()
        story.served.act(ServiceKind.COMPACT_DATA)
    elif drawn < 0.25:
        story.late(dice.randrange(KEYS))
    else:
        gone = [n for n in dice.sample(live, 2) if n not in some] if len(live) > 6 else []
        moves = [n for n in some if n in live][:1] if drawn > 0.8 else []
        story.commit([n for n in some if n not in moves], deletes=gone, moved=moves)


@pytest.mark.parametrize(
    ("table_type", "seed", "kept"),
    [
        (TableType.MERGE_ON_READ, 1, True),
        (TableType.MERGE_ON_READ, 2, True),
        (TableType.MERGE_ON_READ, 3, False),
        (TableType.COPY_ON_WRITE, 4, True),
    ],
)
def test_scans_of_a_table_that_goes_on_come_to_the_entries_of_a_new_scan(
    tmp_path: Path, table_type: TableType, seed: int, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(seed)
    if not kept:
        monkeypatch.setattr(secondary_index_scan, "KEPT_BYTES", 0)
    story = FewNames(tmp_path / "table", table_type)
    story.serve()
    scan = scan_of(story.storage, tmp_path / "scan")
    scan.scan()
    for number in range(6):
        for _ in range(20 if number == 4 else dice.choice([1, 2, 3])):
            step(story, dice)
        scan.scan()
        anew = scan_of(story.storage, tmp_path / f"anew-{number}")
        anew.scan()
        assert entries_of(scan) == entries_of(anew)


def test_of_a_slice_that_got_log_files_only_these_are_read(tmp_path: Path) -> None:
    story = FewNames(tmp_path / "table")
    story.serve()
    for _ in range(20):
        story.commit(range(KEYS))
    storage = CountedStorage(story.path)
    scan = scan_of(storage, tmp_path / "scan")
    scan.scan()
    story.commit((1, 2))
    scan.scan()
    storage.counts = Counts()
    story.commit((1, 2))
    scan.scan()
    rows = {name for names in story.listed_folders().values() for name in names}
    read = [name for name in storage.counts.opened if name in rows]
    assert scan.slices_read == len(read) == 2, "one log file in each partition"


def test_what_is_no_more_than_log_files_is_told_apart(tmp_path: Path) -> None:
    story = FewNames(tmp_path / "table")
    story.serve()
    rows = RowEntries(story.storage, read_table_config(story.storage), SCHEMA, "name")
    one = FileSlice("eu", "f", "base-1", "1", ("a", "b"))
    for other in (
        FileSlice("eu", "f", "base-2", "2", ("a", "b", "c")),
        FileSlice("eu", "f", "base-1", "1", ("a", "c")),
        FileSlice("eu", "f", None, "1", ("a", "b", "c")),
    ):
        assert rows.changes(one, other) is None
