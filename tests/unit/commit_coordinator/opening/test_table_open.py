"""Pending writes are asked for at a table's first start, and at no other."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from tidemark.commit_coordinator.opening.table_open import OpenedTable, open_beside_predecessor
from tidemark.hudi_format.errors import UnsupportedTableError


class BusyTable:
    """A write is always pending; the ledger begins after so many looks at the topics."""

    def __init__(self, begins_after: int) -> None:
        self._begins_after = begins_after
        self.looks = 0

    def has_begun(self) -> bool:
        self.looks += 1
        return self.looks > self._begins_after

    def open_with(self, own_pending: Collection[str] | None) -> OpenedTable:
        if own_pending is not None:
            raise UnsupportedTableError("another writer's deltacommit 777 is pending", "Wait")
        return OpenedTable(None, 1, None, False, None)  # type: ignore[arg-type]


def test_a_write_that_is_in_flight_does_not_keep_a_coordinator_from_starting_again():
    table = BusyTable(0)
    assert open_beside_predecessor(table.open_with, table.has_begun).num_shards == 1
    assert table.looks == 1


def test_the_epoch_of_a_coordinator_that_began_the_ledger_meanwhile_is_not_refused():
    table = BusyTable(2)
    assert open_beside_predecessor(table.open_with, table.has_begun).num_shards == 1
    assert table.looks == 3


def test_a_write_that_is_in_flight_at_the_first_start_is_refused_in_the_end():
    table = BusyTable(20)
    with pytest.raises(UnsupportedTableError, match="777"):
        open_beside_predecessor(table.open_with, table.has_begun)
    assert table.looks == 5


def test_what_refuses_the_table_of_a_begun_ledger_is_asked_once():
    looks: list[Collection[str] | None] = []

    def refused(own_pending: Collection[str] | None) -> OpenedTable:
        looks.append(own_pending)
        raise UnsupportedTableError("partial updates", "Switch them off")

    with pytest.raises(UnsupportedTableError, match="partial updates"):
        open_beside_predecessor(refused, lambda: True)
    assert looks == [None]
