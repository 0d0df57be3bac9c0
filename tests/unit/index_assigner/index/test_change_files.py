"""Files of change runs that a full disk or a killed process leaves: none of them stays."""

from __future__ import annotations

import pytest

from tests.unit.index_assigner.full_disk import created_on_full_disk
from tests.unit.index_assigner.index.test_change_tier import (
    UPDATES,
    _few_are_many,
    change_files,
    in_rocksdb,
    table,
    take_over,
    updated,
)
from tests.unit.index_assigner.index.test_run_tier import groups
from tests.unit.index_assigner.index_world import Change, promoted
from tests.unit.index_assigner.run_faults import KilledError
from tidemark.index_assigner.runs.files import RunFolder

__all__ = ["_few_are_many", "table"]


@pytest.mark.parametrize("is_given_up", [False, True])
def test_a_take_over_that_a_full_disk_refuses_leaves_no_file_and_all_entries(
    assigners, table, monkeypatch: pytest.MonkeyPatch, is_given_up: bool
) -> None:
    one = assigners(table).open(table.known())
    completion = promoted(one, table, UPDATES, 5)
    with monkeypatch.context() as full:
        full.setattr(RunFolder, "create", created_on_full_disk)
        if is_given_up:
            one.ask(["k0399"])
            one.ask(["k0398"])
            assert one.index._runs._loads.is_busy
            one.index.rewind()
            one.open(table.known(completion))
        else:
            take_over(one)
    assert list((one.folder / "runs").glob("*.part")) == []
    assert change_files(one) == []
    assert in_rocksdb(one) == len(UPDATES)
    assert groups(one) == {key: group for key, (group, _) in table.rows.items()}


def test_files_that_no_record_names_are_deleted_at_the_start_whichever_lanes_are_opened_then(
    assigners, table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process was killed between the file's name and the record, and the lane moved to another one. They
    would take room on the disk for ever: the limit takes no change runs by themselves.
    """
    one = updated(assigners, table)
    [named] = change_files(one)
    publish = RunFolder.publish

    def killed(folder: RunFolder, name: str) -> None:
        publish(folder, name)
        raise KilledError

    promoted(one, table, {f"k{n:04d}": Change(3, 2_000 + n) for n in range(10)}, 6)
    with monkeypatch.context() as patched:
        patched.setattr(RunFolder, "publish", killed)
        with pytest.raises(KilledError):
            take_over(one)
    assert len(change_files(one)) == 2
    one.close()
    without_record = one.folder / "runs" / f"00007-{named.name[6:]}"
    without_record.write_bytes(named.read_bytes())
    two = assigners(table)
    assert change_files(two) == [named]
    assert two.index.stats()["run_bytes"] == sum(path.stat().st_size for path in named.parent.iterdir())
    two.open(table.known())
    assert groups(two) == {key: group for key, (group, _) in table.rows.items()}
