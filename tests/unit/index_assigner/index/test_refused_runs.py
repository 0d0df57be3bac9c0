"""The system has no descriptor or mapping left for a run file: the file is whole, and serves later."""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.unit.index_assigner.index.test_run_tier import forget_hot, groups
from tests.unit.index_assigner.index_world import (
    MANY,
    Assigner,
    Change,
    DataTable,
    load_runs,
    promoted,
)
from tidemark.errors import ErrorKind, kind_of
from tidemark.index_assigner.index import change_tier
from tidemark.index_assigner.index.errors import CacheRefusedError

GROUPS = {key: group for key, (group, _) in MANY.items()}
UPDATES = {f"k{n:04d}": Change(1 + n % 3, 1_000 + n, updated=True) for n in range(0, 40, 2)}


@pytest.fixture(params=["descriptors", "mappings"])
def refusing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    """Within it there are none of these for published run files."""
    opened = os.open

    def without_descriptors(path: Any, flags: int, *more: Any) -> int:
        if str(path).endswith(".run") and flags & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EMFILE, "Too many open files")
        return opened(path, flags, *more)

    def without_mappings(*_: Any, **__: Any) -> mmap.mmap:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    @contextmanager
    def refused() -> Iterator[None]:
        with monkeypatch.context() as patched:
            if request.param == "descriptors":
                patched.setattr(os, "open", without_descriptors)
            else:
                patched.setattr(mmap, "mmap", without_mappings)
            yield

    return refused


def files(assigner: Assigner) -> list[str]:
    return sorted(path.name for path in (assigner.folder / "runs").iterdir())


def test_copies_that_cannot_be_opened_stay_and_serve_the_next_opening(assigners, table, refusing) -> None:
    one = assigners(table).open()
    load_runs(one, list(MANY))
    before = files(one)
    one.close()
    with refusing():
        two = assigners(table).open()
        assert files(two) == before
        assert two.index.stats()["run_shards"] == 0
        assert groups(two, list(MANY)[:3]) == dict(list(GROUPS.items())[:3])
    two.close()
    three = assigners(table).open()
    assert groups(three) == GROUPS
    stats = three.index.stats()
    assert (stats["run_shards"], stats["blocks_read"], stats["runs_damaged"]) == (table.shards, 0, 0)


def test_a_load_whose_run_cannot_be_opened_is_not_repeated_with_each_look_up(assigners, refusing) -> None:
    table = DataTable(shards=1)
    table.commit_rows(MANY)
    table.compact_index(clean=True)
    one = assigners(table).open()
    with refusing():
        for _ in range(8):
            forget_hot(one)
            assert groups(one) == GROUPS
    stats = one.index.stats()
    assert (stats["runs_loaded"], stats["run_shards"], stats["runs_damaged"]) == (0, 0, 0)
    [shard] = one.index._held.openings()
    assert not shard.may_load
    for _ in range(16):
        forget_hot(one)
        one.ask(list(MANY))
    assert one.index.stats()["run_shards"] == 1


def test_a_change_run_that_cannot_be_opened_is_not_lost(
    assigners, refusing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lane is opened later, by the next try."""
    monkeypatch.setattr(change_tier, "_WRITTEN_MIN", 8)
    table = DataTable(shards=1)
    table.commit_rows(MANY)
    table.compact_index(clean=True)
    one = assigners(table).open(table.known())
    completion = promoted(one, table, UPDATES, 5)
    for _ in range(30):
        one.ask(["k0399"])
        forget_hot(one)
    assert one.index.stats()["take_overs"] == 1
    before = files(one)
    one.close()
    two = assigners(table)
    with refusing(), pytest.raises(CacheRefusedError) as raised:
        two.open(table.known(completion))
    assert kind_of(raised.value) is ErrorKind.RETRYABLE
    assert files(two) == before
    two.open(table.known(completion))
    assert groups(two) == {key: group for key, (group, _) in table.rows.items()}
    assert two.ask(["k0002"])["k0002"].ordering == 1_002
    stats = two.index.stats()
    assert (stats["change_run_shards"], stats["change_runs_lost"]) == (1, 0)
