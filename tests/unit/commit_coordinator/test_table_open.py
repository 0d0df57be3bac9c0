"""Opening the table while a predecessor still plans and commits epochs on it."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from commit_coordinator.table_open import OpenedTable, open_beside_predecessor
from hudi_format.errors import UnsupportedTableError


class BusyTable:
    """`pending` is the instant on the timeline at each look; the topics know one epoch more each time."""

    def __init__(self, *pending: str) -> None:
        self._pending = list(pending)
        self.looks = 0

    def own_pending(self) -> list[str]:
        self.looks += 1
        return [f"{self.looks:03}"]

    def open_with(self, known: Collection[str]) -> OpenedTable:
        pending = self._pending.pop(0)
        if pending not in known:
            raise UnsupportedTableError(f"another writer's deltacommit {pending} is pending", "Wait")
        return OpenedTable(None, 1, None, False)  # type: ignore[arg-type]


def test_instant_that_a_predecessor_planned_after_the_look_at_the_topics_is_not_refused():
    table = BusyTable("002", "002")
    assert open_beside_predecessor(table.open_with, table.own_pending).num_shards == 1
    assert table.looks == 2


def test_instant_that_a_predecessor_ended_meanwhile_is_still_known():
    table = BusyTable("002", "001")
    assert open_beside_predecessor(table.open_with, table.own_pending).num_shards == 1


def test_instant_of_another_writer_is_refused_in_the_end():
    table = BusyTable(*["777"] * 20)
    with pytest.raises(UnsupportedTableError, match="777"):
        open_beside_predecessor(table.open_with, table.own_pending)
    assert table.looks == 5
