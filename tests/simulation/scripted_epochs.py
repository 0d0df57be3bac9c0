"""Two epochs with every kind of row, and what must come of them."""

from __future__ import annotations

from tests.simulation.commit_path import CommitPath
from tidemark.epoch_protocol.batches import DataOp

GROUP_A = "00000000-0000-4000-8000-00000000000a-0"
GROUP_B = "00000000-0000-4000-8000-00000000000b-0"


def row(key: str, ts: int, value: int, day: str = "d1") -> dict[str, object]:
    """A row of the simulated table."""
    return {"id": key, "day": day, "ts": ts, "v": value}


def first_epoch(path: CommitPath) -> None:
    """Three inserts in two partitions."""
    path.tag([(row("a", 1, 1), DataOp.INSERT, GROUP_A), (row("b", 1, 1), DataOp.INSERT, GROUP_A)])
    path.tag([(row("c", 1, 1, "d2"), DataOp.INSERT, GROUP_B)])


def second_epoch(path: CommitPath) -> None:
    """Two updates of one key, a delete, an insert."""
    path.tag([(row("a", 2, 2), DataOp.UPDATE, GROUP_A), (row("b", 2, 0), DataOp.DELETE, GROUP_A)])
    path.tag([(row("a", 3, 3), DataOp.UPDATE, GROUP_A), (row("e", 3, 3), DataOp.INSERT, GROUP_A)])


EXPECTED = {"a": row("a", 3, 3), "c": row("c", 1, 1, "d2"), "e": row("e", 3, 3)}
EXPECTED_INDEX = {"a": ("d1", GROUP_A), "c": ("d2", GROUP_B), "e": ("d1", GROUP_A)}


def check_traces(path: CommitPath) -> None:
    """Nothing of a finished or voided attempt is left beside the table, once its lock has waited."""
    if path.context is not None:
        path.context.lock.free()
    assert not path.storage.exists(".hoodie/lock")
    assert path.storage.list(".hoodie/.heartbeat") == []
    assert path.storage.walk(".hoodie/.temp") == []
    pending = [i.name for i in path.storage.list(".hoodie/timeline") if "inflight" in i.name]
    instants = {name.partition(".")[0] for name in pending}
    completed = {i.name.partition("_")[0] for i in path.storage.list(".hoodie/timeline") if "_" in i.name}
    assert instants <= completed, "an instant is pending"


def check_end(path: CommitPath) -> None:
    """Table and index after both epochs."""
    assert path.rows() == EXPECTED
    assert path.record_index() == EXPECTED_INDEX
    check_traces(path)
