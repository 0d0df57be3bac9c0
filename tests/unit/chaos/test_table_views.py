"""When the reader of the kill campaign reads again: after every change below the table, and only then."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.chaos.lane_history import Seen
from tests.chaos.table_views import TableViews

COMMITS = [SimpleNamespace(records=0, epoch=1)]


class Watched:
    """A table of one folder, read `times` times."""

    def __init__(self, table: Path) -> None:
        self.table, self.times = table, 0
        timeline: Any = SimpleNamespace(look=lambda: None, commits=COMMITS, jumps=0)
        reader: Any = SimpleNamespace(read_to_end=lambda _: [])
        history: Any = SimpleNamespace(add=lambda _: None, check=lambda _: Seen(0, 0))
        self.views = TableViews(table, timeline, reader, history, self._read)

    def _read(self, _: Path) -> list[Any]:
        self.times += 1
        return []

    def look(self) -> int:
        """How often it has been read after two more looks."""
        self.views._view()
        self.views._view()
        return self.times


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    (tmp_path / "region=north").mkdir()
    (tmp_path / "region=north" / "a.log").write_bytes(b"1")
    return Watched(tmp_path)


def test_every_change_is_read_once(watched: Watched):
    assert watched.look() == 1
    log = watched.table / "region=north" / "a.log"
    log.write_bytes(b"12")
    assert watched.look() == 2
    # The same length, later: times of change are set here, so that no clock is too coarse.
    os.utime(log, ns=(1, 1))
    assert watched.look() == 3
    log.rename(log.with_name("b.log"))
    assert watched.look() == 4
    log.with_name("b.log").unlink()
    assert watched.look() == 5
    assert (watched.views.views, watched.views.exact) == (5, 5)


def test_what_comes_while_it_reads_is_read_next(watched: Watched):
    read = watched._read

    def slow(table: Path) -> list[Any]:
        (watched.table / f"{watched.times}.log").write_bytes(b"") if watched.times < 2 else None
        return read(table)

    watched.views._read = slow
    assert watched.look() == 2
    assert watched.look() == 3
