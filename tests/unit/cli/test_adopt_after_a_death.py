"""`table adopt` of a table whose coordinator was killed with the lock: a way on that needs no topics.

`recover` frees the lock, but asks the topics: those of a table that was moved or copied, or that lost them,
are not there for it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from testing.clock import ManualClock
from tests.simulation.points import Points
from tests.unit.table_files import write_config
from tidemark.cli.main import main
from tidemark.cli.tables import adopt_table, check_moved
from tidemark.commit_coordinator.offline.adoption import AdoptionError, table_lock
from tidemark.config import TableConfigFile, load_config
from tidemark.console.errors import FAILED, exit_code_of
from tidemark.doctor.table import table
from tidemark.hudi_format.publication.folder_lock import folder_lock
from tidemark.hudi_format.publication.folders import open_term, term_dir
from tidemark.hudi_format.publication.locate import read_lock
from tidemark.hudi_format.publication.table_lock import LOCK_PATH
from tidemark.hudi_format.publication.tickets import NO_TERM, TermId
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.ids import SystemIds

CLOCK, IDS = SystemClock(), SystemIds()


class Left:
    """What a killed coordinator left."""

    def __init__(self, folder: Path) -> None:
        file = write_config(folder)
        assert main(["table", "create", "-c", str(file)]) == 0
        self.config: TableConfigFile = load_config(file)
        self.storage = LocalStorage(folder / "table")
        lock = folder_lock(self.storage, CLOCK, IDS, TermId(5), open_term(self.storage, 5))
        lock.acquire(60_000)


@pytest.fixture
def left(tmp_path: Path) -> Left:
    return Left(tmp_path)


def test_without_a_new_ledger_recover_is_named(left: Left):
    with pytest.raises(AdoptionError, match="`tidemark recover` frees it") as refused:
        adopt_table(left.config, CLOCK, IDS, stats=False, say=lambda text: None)
    assert exit_code_of(refused.value) == FAILED
    assert read_lock(left.storage) is not None


def test_a_new_ledger_ends_the_dead_ones_term_and_is_left_its_lock(left: Left):
    """No other writer finds the lock free before the new ledger has it: the dead coordinator's epoch may be
    committed in the metadata table only.
    """
    for _ in range(2):
        document, _ = adopt_table(
            left.config, CLOCK, IDS, stats=False, say=lambda text: None, pending_allowed=True
        )
        assert document["name"] == "orders"
        holder = read_lock(left.storage)
        assert holder is not None
        assert holder.term == NO_TERM.offset
        assert not left.storage.exists(term_dir(5))
    term = TermId(0, "the new ledger")
    lock = folder_lock(left.storage, CLOCK, IDS, term, open_term(left.storage, 0))
    lock.acquire(0)
    lock.release()
    assert read_lock(left.storage) is None


def test_who_asks_is_told_that_a_command_holds_the_lock(left: Left, capsys: pytest.CaptureFixture[str]):
    adopt_table(left.config, CLOCK, IDS, stats=False, say=lambda text: None, pending_allowed=True)
    *_, finding = table(left.config, ManualClock(CLOCK.now_ms() + 120_000), served=False)
    assert "held by a `tidemark table` command" in finding.text
    assert "give it again" in finding.remedy
    capsys.readouterr()
    assert main(["table", "describe", "-c", str(left.config.file)]) == 0
    assert "held by a `tidemark table` command" in capsys.readouterr().out


def test_a_lock_that_nobody_left_is_given_back_before_the_new_ledger(left: Left):
    left.storage.delete_tree(LOCK_PATH)
    adopt_table(left.config, CLOCK, IDS, stats=False, say=lambda text: None, pending_allowed=True)
    assert read_lock(left.storage) is None


def test_the_lock_is_never_free_on_the_way_to_a_new_ledger(left: Left):
    points = HeldAllTheTime(left)
    with table_lock(points.over(left.storage), CLOCK, IDS, ends_terms=True):
        points.passing("inside")
    points.passing("behind")
    assert len(points.passed) > 3


class HeldAllTheTime(Points):
    def __init__(self, left: Left) -> None:
        super().__init__()
        self._left_by = left

    def passing(self, place: str) -> None:
        assert read_lock(self._left_by.storage) is not None, place
        super().passing(place)


def test_a_moved_table_keeps_the_lock_for_its_next_coordinator(left: Left):
    document, _ = check_moved(left.config, CLOCK)
    assert document["name"] == "orders"
    assert read_lock(left.storage) is not None


def test_a_moved_table_is_not_changed_on_the_way(left: Left, capsys: pytest.CaptureFixture[str]):
    assert main(["table", "adopt", "-c", str(left.config.file), "--moved", "--drop-stats"]) == 2
    assert "afterwards" in capsys.readouterr().err
