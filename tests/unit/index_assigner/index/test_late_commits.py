"""Shards whose stamp does not tell what they reflect: late commits, undone ones, an index built anew."""

from __future__ import annotations

import msgspec
import pytest

from tests.unit.index_assigner.index_world import MANY, Change, DataTable, promoted
from tidemark.epoch_protocol.seen import Known
from tidemark.hudi_format.commit.instants import instant_path
from tidemark.hudi_format.commit.rollback import rollback_pending
from tidemark.hudi_format.metadata_table.partitions.record_index import RECORD_INDEX_FOLDER
from tidemark.hudi_format.model import InstantGenerator
from tidemark.hudi_format.publication.unfenced import Unfenced
from tidemark.hudi_format.timeline import DATA_ROOT, METADATA_TABLE_ROOT, Action, load_timeline

NOTHING = Known(None, frozenset(), "0", 0, 0)


class OwnClock:
    """Another writer whose clock stands where the table's stood when this was made."""

    def __init__(self, table: DataTable) -> None:
        self._table = table
        self._times = InstantGenerator(_Fixed(table.times._last_ms))
        table.times._last_ms += 15_000

    def commit_rows(self, rows: dict[str, tuple[int, int]]) -> str:
        ours, self._table.times = self._table.times, self._times
        try:
            return self._table.commit_rows(rows)
        finally:
            self._table.times = ours


class _Fixed:
    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def sleep_ms(self, ms: int) -> None:
        raise AssertionError("nobody waits here")


@pytest.mark.parametrize("look", ["before the look", "after the look"])
def test_a_commit_that_completes_below_the_stamp_is_not_passed_over(assigners, look):
    table = DataTable()
    table.commit_rows({"a": (1, 1)})
    other = OwnClock(table)
    one = assigners(table).open(table.known())
    stamp = promoted(one, table, {"b": Change(1, 1)}, 5)
    known = table.known()
    one.close()
    assert other.commit_rows({"a": (2, 2), "late": (2, 2)}) < stamp
    if look == "after the look":
        # The rewind that took it into account ended the stamps, also of an assigner that was down then.
        known = msgspec.structs.replace(table.known(), generation=1, stamps_from=1)
    two = assigners(table).open(known)
    assert {key: each.group for key, each in two.ask(["a", "b", "late"]).items()} == {
        "a": 2,
        "b": 1,
        "late": 2,
    }


def test_a_commit_that_completes_above_the_stamp_is_caught_up_from_the_logs(assigners):
    """Also when the lane was opened while the fold had not seen it: then it is read twice."""
    table = DataTable()
    one = assigners(table).open(table.known())
    promoted(one, table, {"b": Change(1, 7)}, 5)
    known = table.known()
    table.commit_rows({"a": (2, 2)})
    for seen in (known, table.known()):
        one.close()
        one = assigners(table).open(seen)
        assert one.ask(["a"])["a"].group == 2
        # A shard that is filled anew has lost every ordering value.
        assert one.ask(["b"])["b"].ordering == 7


def test_a_seen_commit_that_was_rolled_back_is_in_no_shard_any_more(assigners):
    table = DataTable()
    table.commit_rows({"a": (1, 1)})
    completion = table.commit_rows({"gone": (2, 2)})
    one = assigners(table).open(table.known())
    known = table.known()
    assert one.ask(["gone"])["gone"].group == 2
    one.close()
    [undone] = [i for i in load_timeline(table.storage).completed() if i.completion == completion]
    for root in (METADATA_TABLE_ROOT, DATA_ROOT):
        found = load_timeline(table.storage, root).find(undone.requested)
        assert found is not None
        table.storage.delete(instant_path(found, root))
    rollback_pending(Unfenced(table.storage), undone.requested, table.times)
    for each in (known, msgspec.structs.replace(table.known(), generation=1, stamps_from=1)):
        two = assigners(table).open(each)
        assert two.ask(["gone"])["gone"].group is None
        assert two.ask(["a"])["a"].group == 1
        two.close()


def test_an_index_whose_base_file_is_older_than_before_is_read_anew(assigners):
    """After a restore: what was folded into the base file that is gone is in neither of the two."""
    table = DataTable()
    table.commit_rows({"a": (1, 1)})
    table.compact_index(clean=False)
    table.commit_rows({"between": (1, 1)})
    table.compact_index(clean=False)
    table.commit_rows({"c": (1, 1)})
    one = assigners(table).open(table.known())
    one.close()
    root = METADATA_TABLE_ROOT
    newest = load_timeline(table.storage, root).completed(Action.COMPACTION)[-1]
    for info in [*table.storage.list(f"{root}/timeline"), *table.storage.list(RECORD_INDEX_FOLDER)]:
        if newest.requested in info.name:
            table.storage.delete(info.path)
    two = assigners(table).open(table.known())
    assert two.ask(["between"])["between"].group == 1
    assert two.ask(["c"])["c"].group == 1


def test_blocks_of_an_index_that_was_built_anew_under_the_same_name_are_read_again(assigners):
    table = DataTable(shards=1)
    table.commit_rows(MANY)
    table.compact_index(clean=True)
    one = assigners(table).open(table.known())
    assert one.ask(["k0007x", *MANY])["k0007x"].group is None
    one.close()
    [base] = [info for info in table.storage.list(RECORD_INDEX_FOLDER) if info.name.endswith(".hfile")]
    other = DataTable(shards=1)
    other.commit_rows(MANY | {"k0007x": (3, 3)})
    other.compact_index(clean=True)
    [anew] = [info for info in other.storage.list(RECORD_INDEX_FOLDER) if info.name.endswith(".hfile")]
    table.storage.replace(base.path, other.storage.read(anew.path))
    two = assigners(table).open(table.known())
    assert two.ask(["k0007x"])["k0007x"].group == 3


def test_a_lane_with_nothing_seen_starts_from_nothing_next_time(assigners):
    """A stamp that is beyond what was seen says nothing: the fold of another ledger."""
    table = DataTable()
    table.commit_rows({"a": (1, 1)})
    one = assigners(table).open(table.known())
    one.close()
    two = assigners(table).open(NOTHING)
    assert two.ask(["a"])["a"].group == 1
