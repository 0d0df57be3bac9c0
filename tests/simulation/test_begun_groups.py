"""Partitions that commits begin in a partitioned record index: whatever is taken back and whoever dies,
Hudi's readers see each entry; and each rule's planted bug is found.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulation.begun_groups_world import Attempt, World
from tidemark.hudi_format.metadata_table import begun_groups

SEEDS = range(60)


def test_readers_see_every_entry_in_random_worlds() -> None:
    reached: set[str] = set()
    for seed in SEEDS:
        world = World(seed)
        assert world.run() == [], f"seed {seed}"
        reached |= world.reached
    assert reached >= {
        "begun",
        "nothing begun",
        "another writer began the partition",
        "taken back when published",
        "taken back when index begun",
        "died when published",
        "died when index done",
        "the other engine waited",
    }


class SeenTooEarly(World):
    """Rule 1 is broken: the tasks publish the files of groups that their commit begins."""

    def prepared(self, attempt: Attempt) -> None:
        self.by.publish(begun_groups.prepare_begun(self.by, attempt.logs.begun))


class GoneTooLate(World):
    """Rule 3 is broken: what was published goes with the rollback, after the lock was given away."""

    def take_back(self, attempt: Attempt) -> None:
        attempt.logs = begun_groups.CommitLogs(attempt.logs.present, [])
        super().take_back(attempt)


class HalfGone(World):
    """Rule 3 is broken: of a group with entries the file of 80 bytes stays until the rollback."""

    def take_back(self, attempt: Attempt) -> None:
        begun = [each for each in attempt.logs.begun if each[0].upserts or each[0].deletes]
        attempt.logs = begun_groups.CommitLogs(attempt.logs.present, begun)
        super().take_back(attempt)


class LockGivenAway(World):
    """Rule 2 is broken: the lock is given away between publishing and completing."""

    def ours(self) -> None:
        super().ours()
        if self.attempt is not None and self.attempt.logs.begun:
            self.is_locked = False


@pytest.mark.parametrize("planted", [SeenTooEarly, GoneTooLate, HalfGone, LockGivenAway])
def test_a_planted_bug_is_found(planted: Callable[[int], World]) -> None:
    found = next((violations for seed in SEEDS if (violations := planted(seed).run())), [])
    assert found, planted.__doc__
