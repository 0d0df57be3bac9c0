"""`table adopt --new-ledger` where a coordinator died with the lock: no other writer finds it free."""

from __future__ import annotations

import errno
import json
import os

import pytest

from tests.simulation.commit_path import CommitPath
from tests.simulation.points import Points
from tests.simulation.scripted_epochs import check_end, first_epoch, second_epoch
from tests.simulation.test_recover_and_new_ledger import die_at, go_on, lose_topics
from tidemark.commit_coordinator.failpoints import CoordinatorFailpoint
from tidemark.commit_coordinator.offline.new_ledger import new_ledger
from tidemark.config import TableConfigFile
from tidemark.hudi_format.publication.locate import read_lock
from tidemark.hudi_format.timeline import load_timeline


class LockWatch(Points):
    """While an instant is pending nobody finds the lock free."""

    def __init__(self, path: CommitPath) -> None:
        super().__init__()
        self._storage = path.storage

    def passing(self, place: str) -> None:
        self.look(place)
        super().passing(place)

    def look(self, place: str) -> None:
        pending = load_timeline(self._storage).pending()
        assert not pending or read_lock(self._storage) is not None, f"the lock is free before {place}"


@pytest.mark.parametrize("is_old", [False, True], ids=["of a ledger", "of an older version"])
def test_new_ledger_takes_the_lock_of_a_half_committed_epoch_over_in_one_step(
    path: CommitPath, config: TableConfigFile, is_old: bool
):
    """The epoch is committed in the metadata table only: another writer would build on half of it. The same
    holds when the storage refuses a call, and the command is given again.
    """
    first_epoch(path)
    path.run_until_idle()
    second_epoch(path)
    die_at(path, CoordinatorFailpoint.AFTER_METADATA_COMMIT)
    lose_topics(path)
    path.clock.advance(121)
    if is_old:
        owner = json.dumps({"tidemark": {"term": 900, "nonce": "n"}}).encode()
        path.storage.replace(".hoodie/lock/owner", owner)
    (pending,) = load_timeline(path.storage).pending()
    watch = LockWatch(path)
    storage, nth = watch.over(path.storage), 1
    while True:
        watch.arm(nth, refuse)
        try:
            begun = new_ledger(config, path.client, storage, path.clock, path.ids)
            break
        except OSError:
            watch.look("the command is given again")
            nth += 1
    assert load_timeline(path.storage).find(pending.requested) is None
    assert read_lock(path.storage) is None
    assert begun.epoch == 1
    go_on(path)
    second_epoch(path)
    path.run_until_idle()
    check_end(path)


def refuse() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
