"""The benchmark's rows, and its model of what a table holds."""

from __future__ import annotations

from pathlib import Path

import pyarrow.compute as pc

from bench.workload import Workload


def test_a_workload_that_was_kept_goes_on_behind_its_last_batch(tmp_path: Path) -> None:
    workload = Workload(1_000)
    for _ in workload.initial_rows():
        pass
    last = workload.batch(200)
    workload.keep(tmp_path / "kept.npz")

    kept = Workload.kept(tmp_path / "kept.npz")

    assert kept.expected() == workload.expected()
    following = kept.batch(200)
    assert pc.min(following["ts"]).as_py() > pc.max(last["ts"]).as_py()
    fresh = set(following["id"].to_pylist()) - set(workload.sample_keys(1_020))
    assert len(fresh) == 20
