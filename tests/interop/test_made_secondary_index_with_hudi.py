"""A secondary index that was made from the rows: Hudi on Spark finds rows by it, keeps it in its own writes,
and reads and writes on what compactions of the metadata table leave of it, ours and Spark's.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from tests.interop.hudi_options import GLOBAL_RECORD_INDEX
from tests.interop.judge import HudiJudge
from tests.service_actions import ServedTable
from tests.unit.table_files import new_table, table_schema, write_config
from tidemark.commit_coordinator.offline.secondary_index import create_index
from tidemark.config import load_config
from tidemark.epoch_protocol.service_entries import ServiceKind
from tidemark.hudi_format import secondary_index_scan
from tidemark.hudi_format.metadata_table import MetadataTableSnapshot
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, Action, load_timeline
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.ids import SystemIds
from tidemark.table_verification.verify import verify_table

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif("TIDEMARK_SERVICES" not in os.environ, reason="make services-interop"),
]

NAME = "secondary_index_by_note"
DAYS = [f"2026-01-0{number}" for number in range(1, 5)]
TEXTS = ["x", "", "a$b\\c", "\u00e9\U0001f600", "\0", None]


def rows(day: str, at: int, notes: Sequence[tuple[str, str | None]]) -> pa.Table:
    """Rows of (key, note)."""
    return pa.table(
        {
            "id": [key for key, _ in notes],
            "day": [day] * len(notes),
            "at": [at] * len(notes),
            "note": pa.array([note for _, note in notes], pa.string()),
        }
    )


def looked_up(judge: HudiJudge, table: Path, condition: str) -> tuple[set[str], int]:
    """The keys that Spark finds by the index, as a scan does, and the number of files that it opened."""
    options = {"hoodie.metadata.enable": "true", "hoodie.enable.data.skipping": "true"}
    frame = judge._frame(table, options).where(condition).select("id", "note")
    found, files = judge.rows_and_files(frame)
    scanned = judge.filtered(table, condition, skipping=False)
    keys = {row["id"] for row in found}
    assert keys == {row["id"] for row in scanned}, condition
    return keys, files


def check(judge: HudiJudge, table: Path, expected: dict[str, set[str]], files_max: dict[str, int]) -> None:
    verified = verify_table(LocalStorage(table), lambda text: None)
    assert verified.agrees, verified.findings.examples
    for condition, keys in expected.items():
        found, files = looked_up(judge, table, condition)
        assert found == keys, condition
        assert files <= files_max.get(condition, 99), condition


def test_spark_looks_rows_up_and_keeps_the_index(
    judge: HudiJudge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secondary_index_scan, "ENTRIES_PER_GROUP", 9)
    table = tmp_path / "table"
    writer = new_table(table)
    for number, day in enumerate(DAYS):
        mine = [(f"{number}-{at}", text) for at, text in enumerate(TEXTS)]
        writer.commit(rows(day, 1, [*mine, (f"only-{number}", f"only {number}")]))
    writer.commit(rows(DAYS[0], 2, [("0-0", "changed"), ("0-5", "was null")]), [("only-1", None)])
    file = write_config(tmp_path)
    made = create_index(load_config(file), SystemClock(), SystemIds(), "by_note", "note", lambda text: None)
    assert made.groups > 1

    of_x = {"1-0", "2-0", "3-0"}
    expected = {
        "note = 'x'": of_x,
        "note = 'changed'": {"0-0"},
        "note = 'only 2'": {"only-2"},
        "note = 'only 1'": set(),
        r"note = 'a$b\\c'": {f"{number}-2" for number in range(4)},
        "note IN ('only 0', 'only 3', 'was null')": {"only-0", "only-3", "0-5"},
        "note IS NULL": {"1-5", "2-5", "3-5"},
    }
    few = {"note = 'only 2'": 1, "note = 'changed'": 1, "note IN ('only 0', 'only 3', 'was null')": 2}
    check(judge, table, expected, few)

    judge.upsert(table, rows(DAYS[2], 3, [("2-0", "by spark"), ("only-2", None), ("new", "x")]))
    judge.delete(table, rows(DAYS[3], 4, [("3-0", "x")]))
    expected |= {
        "note = 'x'": {"1-0", "new"},
        "note = 'by spark'": {"2-0"},
        "note = 'only 2'": set(),
        "note IS NULL": {"1-5", "2-5", "3-5", "only-2"},
    }
    few = {"note = 'by spark'": 1, "note = 'changed'": 1}
    check(judge, table, expected, few)

    served = ServedTable(table, table_schema(), SystemClock())
    assert served.act(ServiceKind.COMPACT_INDEX), served.dropped
    storage = LocalStorage(table)
    slices = MetadataTableSnapshot.load(storage).slices[NAME]
    ours = load_timeline(storage, METADATA_TABLE_ROOT).completed(Action.COMPACTION)[-1].requested
    # Groups without log files since a compaction of Spark's stay as they are.
    assert ours in {file_slice.base_instant for file_slice in slices}
    assert not any(file_slice.log_files for file_slice in slices)
    check(judge, table, expected, few)

    theirs = {**GLOBAL_RECORD_INDEX, "hoodie.metadata.compact.max.delta.commits": "1"}
    judge.upsert(table, rows(DAYS[1], 5, [("1-0", "last")]), theirs)
    judge.upsert(table, rows(DAYS[1], 6, [("1-1", "last")]), theirs)
    compactions = load_timeline(storage, METADATA_TABLE_ROOT).completed(Action.COMPACTION)
    assert compactions[-1].requested > ours
    check(judge, table, {**expected, "note = 'x'": {"new"}, "note = 'last'": {"1-0", "1-1"}}, few)
