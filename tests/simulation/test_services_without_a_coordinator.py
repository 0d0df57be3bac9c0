"""`tidemark recover` and a new ledger while a service action is open or decided: nothing stays pending."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.noop_service import USELESS, Noop
from tests.simulation.scripted_epochs import check_traces
from tests.simulation.service_path import ServicePath
from tests.simulation.test_service_protocol import begun
from tidemark.commit_coordinator.failpoints import CoordinatorFailpoint
from tidemark.commit_coordinator.offline import open_services
from tidemark.commit_coordinator.offline.new_ledger import new_ledger
from tidemark.commit_coordinator.offline.recovery import recover
from tidemark.config import TableConfigFile
from tidemark.epoch_protocol.service_entries import ServiceCommitted, ServiceVoided
from tidemark.stream_runtime.failpoint import FailpointAction, FailpointHitError

UNDECIDED = [CoordinatorFailpoint.AFTER_SERVICE_PLANNED, CoordinatorFailpoint.BEFORE_SERVICE_DECIDED]
DECIDED = [
    CoordinatorFailpoint.AFTER_SERVICE_DECIDED,
    CoordinatorFailpoint.AFTER_SERVICE_REQUESTED,
    CoordinatorFailpoint.AFTER_SERVICE_INFLIGHT,
    CoordinatorFailpoint.AFTER_EACH_SERVICE_FILE,
]
COMPLETED = [
    CoordinatorFailpoint.AFTER_SERVICE_COMPLETED,
    CoordinatorFailpoint.IN_SWEEP,
    CoordinatorFailpoint.BEFORE_SERVICE_COMMITTED,
]


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ServicePath:
    monkeypatch.setattr(open_services, "handlers_of", lambda *_: [Noop()])
    return begun(tmp_path / "table", beside_epoch=False)


def dead_at(path: ServicePath, failpoint: CoordinatorFailpoint) -> str:
    """The instant of the one action, whose coordinator died there."""
    path.failpoints.arm(failpoint, 1, FailpointAction.RAISE)
    with pytest.raises(FailpointHitError):
        path.run_until_idle()
    path.crash()
    return path.planned_services()[1].instant


@pytest.mark.parametrize("failpoint", [*UNDECIDED, *DECIDED, *COMPLETED])
def test_recover_ends_every_action(
    path: ServicePath, config: TableConfigFile, failpoint: CoordinatorFailpoint
) -> None:
    instant = dead_at(path, failpoint)
    assert recover(config, path.client, path.storage, path.clock, path.ids).services == (1,)
    [end] = path.ended().values()
    if failpoint in UNDECIDED:
        assert isinstance(end, ServiceVoided)
        assert path.names_with(instant) == []
    else:
        assert isinstance(end, ServiceCommitted)
        assert not path.storage.walk(USELESS)
    check_traces(path)
    assert recover(config, path.client, path.storage, path.clock, path.ids).services == ()
    path.handlers = lambda _: [Noop(2)]
    path.run_until_idle()


@pytest.mark.parametrize("failpoint", [*UNDECIDED, *DECIDED, *COMPLETED])
def test_a_new_ledger_leaves_no_instant_pending(
    path: ServicePath, config: TableConfigFile, failpoint: CoordinatorFailpoint
) -> None:
    instant = dead_at(path, failpoint)
    begun_anew = new_ledger(config, path.client, path.storage, path.clock, path.ids)
    assert begun_anew.epoch == 2
    if failpoint in COMPLETED:
        assert any(name.endswith(".clean") for name in path.names_with(instant))
        assert not path.storage.walk(USELESS)
    else:
        assert path.names_with(instant) == []
    assert not [each for each in path.files() if "/service-" in each]
    assert not [each for each in path.storage.list(".hoodie/.aux/tidemark/terms") if "service" in each.name]
    assert path.state().services == {}
    check_traces(path)
