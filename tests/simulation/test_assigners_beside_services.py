"""An assigner that is away, or open, while the table is compacted, cleaned and archived: its answers are
slower then, and never wrong.
"""

from __future__ import annotations

import pytest

from tests.simulation.test_foreign_engine import BEGIN, GO_ON, must_hold, played
from tidemark.hudi_format.metadata_table.shard_changes import ShardChanges

_OTHERS = "step shuffler-0\nstep assigner-1\nstep coordinator\nstep writer\n"
AWAY = f"""
kill assigner-0
wait 4000
{_OTHERS * 6}
feed up k0 d1 20
feed del k1 21
feed up k6 d0 22
hurry
{_OTHERS * 10}
feed up k2 d0 30
feed up k7 d2 31
hurry
{_OTHERS * 10}
"""
COMES_BACK = "kill assigner-1\nwait 4000"
SERVICES = {
    "compacted and archived": "foreign compact-index\nforeign archive 1",
    "compacted, cleaned and archived": "foreign compact-index clean\nforeign archive 1",
    "compacted and cleaned": "foreign compact-index clean",
    "compacted twice": "foreign compact-index\nforeign insert d2\nforeign compact-index clean\n"
    "foreign archive 1",
}
CAUGHT_UP = ("compacted and archived",)


@pytest.fixture
def over_archived(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each question for changes that archived commits are a part of: whether there was an answer."""
    answers: list[bool] = []
    asked = ShardChanges.after

    def after(changes: ShardChanges, file_id: str, completion_time: str):
        found = asked(changes, file_id, completion_time)
        archive = changes.validity.data.archive
        if archive is not None and completion_time > "0" and archive.has_completed_after(completion_time):
            answers.append(found is not None)
        return found

    monkeypatch.setattr(ShardChanges, "after", after)
    return answers


@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("name", SERVICES)
def test_who_was_away_knows_all_again(name: str, small: bool, over_archived: list[bool]) -> None:
    """`small`: caches that hold a few keys, so that blocks are read again and again."""
    setup = f"type=mor assigners=2{' cache_bytes=1500 block_bytes=100' if small else ''}"
    must_hold(played(setup, BEGIN, AWAY, SERVICES[name], COMES_BACK, GO_ON))
    assert any(over_archived) == (name in CAUGHT_UP)


@pytest.mark.parametrize("services", ["foreign compact-index", "foreign compact-index clean"])
@pytest.mark.parametrize("kind", ["mor", "cow"])
def test_an_open_shard_goes_on_after_compactions(kind: str, services: str) -> None:
    """With its base file, or with a newer one where that was cleaned."""
    setup = f"type={kind} cache_bytes=1500 block_bytes=100"
    must_hold(played(setup, BEGIN, services, GO_ON, services, "foreign archive 1", GO_ON))


def test_an_archive_without_a_clean_is_caught_up_also_where_a_disk_was_lost_before() -> None:
    must_hold(
        played(
            "type=mor assigners=2",
            BEGIN,
            "lose-disk assigner-0",
            AWAY,
            "foreign compact-index\nforeign archive 1",
            COMES_BACK,
            GO_ON,
        )
    )
