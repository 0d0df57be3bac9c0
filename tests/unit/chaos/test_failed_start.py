"""A round that fails while it starts: it says why, and leaves nothing behind that runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.chaos import campaign
from tests.chaos.campaign import ChaosError, Round
from tests.chaos.settings import Settings

WHY = "Kafka does not start"


class Cluster:
    """It does not start, and has one seat, of which nobody can learn what it does."""

    def __init__(self, folder: Path, *_: object) -> None:
        self.table, self.logs = folder / "table", folder / "logs"
        self.seats = {"coordinator": self}
        self.replaced: list[object] = []
        self.name = self.role = "coordinator"
        self.exits: list[object] = []
        self.error: BaseException = AssertionError(WHY)
        self.is_closed = False

    def start(self) -> None:
        raise self.error

    def pid(self) -> int:
        raise RuntimeError("it is gone")

    def admin_config(self) -> Path:
        return self.logs

    def pids(self) -> dict[str, list[int]]:
        return {}

    def close(self) -> None:
        self.is_closed = True


class Disk:
    """Its files vanish while they are copied."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.is_closed = folder / "gone", False

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def a_round(tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(campaign, "Cluster", Cluster)
    monkeypatch.setattr(campaign, "_mount", lambda folder, say: {"table": Disk(folder)})
    return Round(Settings(tmp_path, 1), said.append)


def test_what_was_found_is_told_although_the_services_cannot_be_asked(a_round: Any) -> None:
    with pytest.raises(ChaosError, match=WHY) as failed, a_round:
        pass
    assert "is not known: RuntimeError: it is gone" in str(failed.value)
    assert a_round.cluster.is_closed


def test_what_was_found_is_told_although_a_disk_cannot_be_kept(a_round: Any, said: list[str]) -> None:
    with pytest.raises(ChaosError, match=WHY), a_round:
        pass
    assert any("not all was kept" in each for each in said)
    assert a_round.cluster.is_closed
    assert a_round.disks["table"].is_closed


def test_everything_is_ended_although_the_failure_cannot_be_told(
    a_round: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(campaign, "told_now", refuses)
    with pytest.raises(KeyboardInterrupt), a_round:
        pass
    assert a_round.cluster.is_closed


def test_an_interrupt_goes_on_as_it_is(a_round: Any) -> None:
    a_round.cluster.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt), a_round:
        pass
    assert a_round.cluster.is_closed


def test_all_parts_are_ended_although_some_cannot_be(a_round: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one, and one in the middle; what both said is told."""

    def fails(why: str) -> Any:
        def end() -> None:
            raise RuntimeError(why)

        return end

    monkeypatch.setattr(a_round.memory, "stop", fails("the memory watch"))
    monkeypatch.setattr(a_round.timeline, "end", fails("the timeline watch"))
    with pytest.raises(BaseExceptionGroup) as failed:
        a_round.close()
    assert [str(each) for each in failed.value.exceptions] == ["the memory watch", "the timeline watch"]
    assert a_round.cluster.is_closed
    assert a_round.disks["table"].is_closed


def test_what_the_only_part_said_that_cannot_be_ended_is_told(
    a_round: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(a_round.secondary, "end", interrupt)
    with pytest.raises(KeyboardInterrupt):
        a_round.close()
    assert a_round.cluster.is_closed
    assert a_round.disks["table"].is_closed
