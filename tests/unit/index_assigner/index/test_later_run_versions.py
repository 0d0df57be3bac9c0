"""Run files of a version that is not known here."""

from __future__ import annotations

import pytest

from tests.unit.index_assigner.index.test_run_tier import GROUPS, groups, run_files
from tests.unit.index_assigner.index_world import MANY, Change, load_runs, promoted
from tidemark.index_assigner.runs import directory


def test_a_run_of_a_later_version_costs_the_load_of_its_shard_and_nothing_else(
    assigners, table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who goes back to a former version: the other shards answer from their runs meanwhile."""
    one = assigners(table).open(table.known())
    promoted(one, table, {"k0001": Change(3, 900)}, 5)
    with monkeypatch.context() as later:
        later.setattr(directory, "FORMAT_VERSION", directory.PARTIAL_VERSION + 1)
        load_runs(one, list(MANY))
    one.close()
    path = run_files(one)[0]
    for other in run_files(one)[1:]:
        other.unlink()
    two = assigners(table).open(table.known())
    assert groups(two) == {**GROUPS, "k0001": 3}
    assert two.index.stats()["run_damaged_shard_0"] == two.index.stats()["runs_damaged"] == 1
    load_runs(two, list(MANY))
    assert (path.exists(), two.index.stats()["run_shards"]) == (True, table.shards)
    assert two.ask(["k0001"])["k0001"].ordering == 900, "entries go on"
