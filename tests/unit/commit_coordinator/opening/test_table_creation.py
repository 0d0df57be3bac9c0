"""A creation that is killed at any write is finished by whoever comes next."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from testing.clock import ManualClock
from testing.memory_storage import InMemoryStorage
from tidemark.commit_coordinator.opening.table_creation import (
    CREATION,
    CreationError,
    create_or_finish,
    is_half_made,
)
from tidemark.commit_coordinator.opening.table_open import TableMismatchError, open_table
from tidemark.config import TableConfigFile, load_config
from tidemark.hudi_format.commit.create_table import create_table
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.table_config import PROPERTIES_PATH, TableDefinition, TableType
from tidemark.hudi_format.validation import check_servable

START_MS = 1_750_000_000_000
DEFINITION = TableDefinition(name="t", table_type=TableType.MERGE_ON_READ, record_key_fields=("id",))
SHARDS = 3
_WRITES = ("create", "replace", "make_dir", "delete", "rename", "publish", "sync_dir", "delete_tree", "touch")


class KilledError(Exception):
    """The process is gone."""


class Dying:
    """A storage whose process is killed around its nth call that writes."""

    def __init__(self, inner: Storage, nth: int, after: bool) -> None:
        self._inner, self._left, self._after = inner, nth, after

    def __getattr__(self, name: str) -> Any:
        call: Callable[..., Any] = getattr(self._inner, name)
        return self._counted(call) if name in _WRITES else call

    def _counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def work(*arguments: Any, **named: Any) -> Any:
            self._left -= 1
            if self._left == 0 and not self._after:
                raise KilledError
            result = call(*arguments, **named)
            if self._left == 0:
                raise KilledError
            return result

        return work

    @property
    def survived(self) -> bool:
        return self._left > 0


def finished_after_each_death(
    make: Callable[[Storage, ManualClock], None], after: bool = True
) -> Iterator[Storage]:
    """A table for each write of its creation: the creation was killed there, and then finished."""
    for nth in count(1):
        storage, clock = InMemoryStorage(), ManualClock(START_MS)
        dying: Any = Dying(storage, nth, after)
        with contextlib.suppress(KilledError):
            make(dying, clock)
        if dying.survived:
            return
        clock.advance(3_600)
        make(storage, clock)
        yield storage


def content(storage: Storage) -> dict[str, bytes]:
    return {info.path: storage.read(info.path) for info in storage.walk("")}


def made_at_once() -> dict[str, bytes]:
    storage = InMemoryStorage()
    create_or_finish(storage, DEFINITION, SHARDS, ManualClock(START_MS))
    return content(storage)


@pytest.mark.parametrize("after", [False, True])
def test_killed_at_every_write_it_is_finished(after: bool) -> None:
    deaths, wanted = 0, set(made_at_once())
    for storage in finished_after_each_death(
        lambda storage, clock: create_or_finish(storage, DEFINITION, SHARDS, clock), after
    ):
        deaths += 1
        check_servable(storage)
        assert MetadataTableSnapshot.load(storage).num_shards == SHARDS
        assert not is_half_made(storage, DEFINITION)
        names = set(content(storage))
        assert {name for name in names if "/timeline/" not in name} == {
            name for name in wanted if "/timeline/" not in name
        }
        completed = [n for n in names if n.endswith(".deltacommit")]
        assert len(completed) == 2, f"two first commits, each completed once: {completed}"
    assert deaths >= 15


def test_two_that_create_at_once_make_one_table() -> None:
    """The second begins when the first is in the middle, and both go to their ends."""
    for nth in range(1, 25):
        storage = InMemoryStorage()
        first, second = ManualClock(START_MS), ManualClock(1_750_000_777_000)
        dying = Dying(storage, nth, after=True)
        try:
            create_or_finish(dying, DEFINITION, SHARDS, first)
        except KilledError:
            create_or_finish(storage, DEFINITION, SHARDS, second)
            continue
        check_servable(storage)


def test_what_a_former_version_left_is_finished() -> None:
    storage, clock = InMemoryStorage(), ManualClock(START_MS)
    create_table(storage, DEFINITION)
    assert is_half_made(storage, DEFINITION)
    create_or_finish(storage, DEFINITION, SHARDS, clock)
    check_servable(storage)
    other = InMemoryStorage()
    create_table(other, DEFINITION)
    other.create("p/file.parquet", b"x")
    assert not is_half_made(other, DEFINITION), "somebody wrote to it"


def test_another_configuration_does_not_finish_it() -> None:
    storage, clock = InMemoryStorage(), ManualClock(START_MS)
    with pytest.raises(KilledError):
        create_or_finish(Dying(storage, 8, True), DEFINITION, SHARDS, clock)
    with pytest.raises(CreationError, match="begun with another configuration"):
        create_or_finish(storage, DEFINITION, SHARDS + 1, clock)
    storage.replace(CREATION, b"{")
    with pytest.raises(CreationError, match=r"creation\.json is damaged .*another version"):
        create_or_finish(storage, DEFINITION, SHARDS, clock)


def test_a_folder_in_use_is_refused() -> None:
    storage = InMemoryStorage()
    storage.create("something.txt", b"x")
    with pytest.raises(CreationError, match="not empty"):
        create_or_finish(storage, DEFINITION, SHARDS, ManualClock(1))


def test_the_coordinator_finishes_it_and_refuses_another_number_of_shards(tmp_path: Path) -> None:
    config, storage, clock = configured(tmp_path, 4), InMemoryStorage(), ManualClock(START_MS)
    with pytest.raises(KilledError):
        open_table(config, Dying(storage, 8, True), clock)
    assert storage.exists(CREATION)
    assert open_table(config, storage, clock).created
    assert not open_table(config, storage, clock).created
    with pytest.raises(
        TableMismatchError, match=r"shards is 5, the record index of .* has 4 shards.*leave it out"
    ):
        open_table(configured(tmp_path, 5), storage, clock)
    assert open_table(configured(tmp_path, None), storage, clock).num_shards == 4
    assert storage.exists(PROPERTIES_PATH)


def configured(folder: Path, shards: int | None) -> TableConfigFile:
    (folder / "t.avsc").write_text(
        '{"type": "record", "name": "t", "fields": [{"name": "id", "type": "string"}]}'
    )
    given = f", index: {{shards: {shards}}}" if shards else ""
    (folder / "t.yaml").write_text(
        f"table: {{name: t, path: ./w, record_key: [id], schema: t.avsc{given}}}\n"
        "input: {topics: [in]}\nkafka: {bootstrap.servers: embedded}\nstate: {path: ./state}\n"
    )
    return load_config(folder / "t.yaml", {})
