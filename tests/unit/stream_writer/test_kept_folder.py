"""The folder in which the workers of an executor share what they decoded."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from testing.clock import ManualClock
from tidemark.stream_writer.worker_context import WorkerContext

TABLE = pa.table({"n": [1]})


def worker() -> WorkerContext:
    return WorkerContext(ManualClock())


def test_workers_of_one_executor_share_the_first_local_folder_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("second", "third"):
        (tmp_path / name).mkdir()
    local = [str(tmp_path / name) for name in ("first", "second", "third")]
    monkeypatch.setenv("SPARK_LOCAL_DIRS", ",".join(local))
    worker().kept_tables(7, 1 << 20).put("a", TABLE.nbytes, lambda: [TABLE])
    assert [path.name for path in (tmp_path / "second").iterdir()] == ["tidemark-values"]
    got = worker().kept_tables(7, 1 << 20).get("a")
    assert got is not None
    assert got[0].equals(TABLE)


@pytest.mark.parametrize("folders", [None, "", "/nowhere,"])
def test_without_a_local_folder_nothing_is_kept(folders: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if folders is None:
        monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    else:
        monkeypatch.setenv("SPARK_LOCAL_DIRS", folders)
    kept = worker().kept_tables(1, 1 << 20)
    kept.put("a", TABLE.nbytes, lambda: pytest.fail("made"))
    assert kept.get("a") is None
