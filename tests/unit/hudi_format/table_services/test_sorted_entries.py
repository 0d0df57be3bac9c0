"""Sorted runs that are merged: which entry counts, how often one is written, and who hears of it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tidemark.hudi_format.table_services.merging import sorted_entries
from tidemark.hudi_format.table_services.merging.sorted_entries import Entries, SortedEntries

RUNS = 27


@pytest.mark.parametrize("keeps_all", [False, True])
def test_many_runs_are_merged_in_few_passes_and_each_window_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keeps_all: bool
) -> None:
    monkeypatch.setattr(sorted_entries, "RUNS_MAX", 3)
    entries = SortedEntries(tmp_path, "runs", 1, keeps_all=keeps_all)
    for run in range(RUNS):
        keys, values = [f"own{run:02d}", "shared"], [b"", b"%02d" % run]
        entries.add(Entries.of(pa.array(keys), pa.array(values, pa.binary())))
    assert len(list(tmp_path.iterdir())) == RUNS
    told: list[int] = []
    batches = entries.batches(lambda: told.append(len(list(tmp_path.iterdir()))))
    first = next(batches)
    assert len(told) == 9 + 3 + 1 + 1, "each window, before anything is given back"
    found = Entries.concat([first, *batches])
    own = [f"own{run:02d}".encode() for run in range(RUNS)]
    shared = [b"%02d" % run for run in range(RUNS)] if keeps_all else [b"26"]
    assert found.keys.to_pylist() == [*own, *[b"shared"] * len(shared)]
    assert found.values.to_pylist()[RUNS:] == shared, "the newest, or all of them, oldest first"
    assert entries._made == RUNS + 9 + 3 + 1, "each entry is in one run of each pass"
    assert max(told) <= RUNS + 1, "runs that were merged are deleted"
