"""Index entries in file groups that another engine replaced: none is taken for a row."""

import pytest

from tests.unit.index_assigner.index_world import LANES, Change, DataTable
from tidemark.index_assigner.index.errors import IndexMismatchError
from tidemark.index_assigner.index.ports import Tier


@pytest.mark.parametrize("archived", [False, True], ids=["active", "archived"])
@pytest.mark.parametrize("ordered", [True, False], ids=["ordered", "unordered"])
def test_an_entry_that_was_left_behind_in_a_replaced_group_is_none(assigners, archived, ordered):
    """Hudi's delete partition and insert overwrite leave entries of rows that are in log files alone."""
    table = DataTable()
    table.commit_rows({"a": (1, 4), "b": (2, 4)})
    one = assigners(table, ordered=ordered).open()
    assert one.ask("ab")["a"].group == 1
    table.replace_group(1, archived=archived)
    one.index.rewind()
    one.open()
    found = one.ask("ab")
    assert (found["a"].group, found["a"].ordering, found["a"].tier) == (None, None, Tier.NONE)
    assert found["b"].group == 2
    # What is tagged anew has a place again, before and after its commit.
    one.stage({"a": Change(3, 5)})
    one.index.counted(range(LANES), 5)
    assert one.ask("a")["a"].group == 3
    completion = table.commit_rows({"a": (3, 5)})
    one.index.promote(5, completion, 1)
    assert one.ask("a")["a"].group == 3
    assert assigners(table, "b", ordered=ordered).open().ask("a")["a"].group == 3


def test_a_clustering_that_was_archived_takes_no_entry_away(assigners):
    """It moves all rows, and their entries; an index that still names its group contradicts the data."""
    table = DataTable()
    table.commit_rows({"a": (1, 4)})
    table.replace_group(1, operation="CLUSTER", archived=True)
    one = assigners(table).open()
    assert one.ask("a")["a"].group == 1
    with pytest.raises(IndexMismatchError):
        one.exact("a", 1)
