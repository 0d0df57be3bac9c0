"""Another engine's index hides base files of the metadata table: the coordinator rewinds once, and goes on.

What is put back, and that it counts again, is in tests/unit/commit_coordinator/table_services.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.simulation.kept_secondary import define, switch_on
from tests.simulation.scripted_epochs import check_end
from tests.simulation.test_other_engines import tag_anew
from tests.simulation.test_unfinished_index import second_written
from tidemark.commit_coordinator.commit import hidden_bases
from tidemark.hudi_format.model import InstantGenerator
from tidemark.hudi_format.publication.port import Term
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.timeline import ArchivedInstant

ROW = ArchivedInstant("20260101000000000", "20260101000000001", "commit", b"", b"plan")


class Hidden:
    """An archive with one compaction whose base file is hidden; ``done``: what became of it, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[str] = []
        monkeypatch.setattr(hidden_bases, "hidden_bases", self.rows)
        monkeypatch.setattr(hidden_bases, "unhide", self.unhide)
        monkeypatch.setattr(hidden_bases, "finish_unhiding", self.finish)

    def rows(self, storage: Storage) -> list[ArchivedInstant]:
        return [] if "finished" in self.done else [ROW]

    def unhide(self, by: Term, hidden: Sequence[ArchivedInstant]) -> None:
        by.lock.check()
        self.done.append("put back")

    def finish(self, by: Term, hidden: Sequence[ArchivedInstant]) -> None:
        by.lock.check()
        self.done += ["finished"] if hidden else []


@pytest.mark.parametrize("dies", [False, True])
def test_a_build_that_hides_base_files_is_followed_by_one_rewind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies: bool
) -> None:
    path, hidden = second_written(tmp_path), Hidden(monkeypatch)
    define(path.storage, "v")
    switch_on(path.storage, 2, at=InstantGenerator(path.clock).next())
    while "put back" not in hidden.done:
        path.step()
        path.clock.advance(1)
    if dies:
        path.crash()
    tag_anew(path, 1)
    assert path.state().committed.epoch == 1, "what was tagged meanwhile counts no more"
    path.run_until_idle()
    assert hidden.done == ["put back"] * (1 + dies) + ["finished"]
    assert (path.state().generation, path.state().committed.epoch) == (1, 2)
    check_end(path)
