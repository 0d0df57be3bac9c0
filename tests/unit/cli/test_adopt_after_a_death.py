"""`table adopt` of a table whose coordinator was killed with the lock: a way on that needs no topics.

`recover` frees the lock, but asks the topics: those of a table that was moved or copied, or that lost them,
are not there for it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.table_files import write_config
from tidemark.cli.main import main
from tidemark.cli.tables import adopt_table, check_moved
from tidemark.commit_coordinator.offline.adoption import AdoptionError
from tidemark.config import TableConfigFile, load_config
from tidemark.console.errors import FAILED, exit_code_of
from tidemark.hudi_format.publication.folder_lock import folder_lock
from tidemark.hudi_format.publication.folders import open_term, term_dir
from tidemark.hudi_format.publication.locate import read_lock
from tidemark.hudi_format.publication.tickets import TermId
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
        adopt_table(left.config, CLOCK, IDS, stats=False)
    assert exit_code_of(refused.value) == FAILED
    assert read_lock(left.storage) is not None


def test_a_new_ledger_ends_the_dead_ones_term(left: Left):
    document, _ = adopt_table(left.config, CLOCK, IDS, stats=False, pending_allowed=True)
    assert document["name"] == "orders"
    assert read_lock(left.storage) is None
    assert not left.storage.exists(term_dir(5))


def test_a_moved_table_keeps_the_lock_for_its_next_coordinator(left: Left):
    document, _ = check_moved(left.config, CLOCK)
    assert document["name"] == "orders"
    assert read_lock(left.storage) is not None


def test_a_moved_table_is_not_changed_on_the_way(left: Left, capsys: pytest.CaptureFixture[str]):
    assert main(["table", "adopt", "-c", str(left.config.file), "--moved", "--drop-stats"]) == 2
    assert "afterwards" in capsys.readouterr().err
