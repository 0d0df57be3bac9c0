"""Lanes of an assigner that share a partitioned index, while another writer changes the table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.unit.hudi_format.metadata_table.test_partitioned_index import PartitionedTable
from tests.unit.hudi_format.metadata_tables import file_id
from tests.unit.index_assigner.index.test_partitioned_model import KEYS, LANES, Process, by_lane
from tidemark.index_assigner.index.errors import IndexOutdatedError


def test_each_lane_takes_in_what_another_writer_deleted(tmp_path: Path) -> None:
    """The first lane that finds a row gone looks at the table again. The units of the other one are of before
    that look.
    """
    table, of_lane = PartitionedTable(), by_lane([("eu", key) for key in KEYS])
    rows = [of_lane[lane][0] for lane in range(LANES)]
    table.commit(dict.fromkeys(rows, 1), 2)
    process = Process(table, tmp_path / "cache", ordered=True)
    assert process.ask(rows) == dict.fromkeys(rows, 1)
    table.commit(dict.fromkeys(rows), 2)
    for lane, row in enumerate(rows):
        keys, _ = process.columns([row])
        at = np.array([process.locations.intern("eu", file_id(1))], np.int32)
        assert process.ask([row]) == {row: 1}
        with pytest.raises(IndexOutdatedError):
            process.index.exact_ordering(lane, keys, at)
        assert process.ask([row]) == {}
    process.close()
