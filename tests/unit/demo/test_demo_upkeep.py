"""The table services at the end of the demo: in which order they run, what they are waited for, and the
checks of a table that is kept up. The admin client is a double.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from testing.clock import ManualClock
from tests.unit.table_files import new_table, orders
from tests.unit.table_verification.compacting import Services
from tests.unit.table_verification.damage import DAYS
from tidemark.config import load_config
from tidemark.console.admin_client import AdminClient
from tidemark.console.errors import CliError
from tidemark.demo import upkeep
from tidemark.demo.report import UpkeepAction
from tidemark.demo.upkeep import Upkeep, service_checks, settings_beside_defaults
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.table_status.services import CLEANS, EndedServiceAction, OwnServices, ServiceKindState


class Admin:
    """Ends each action when it is looked at. `outcomes`: of the first actions, `done` behind them. A kind has
    something to do until one was done.
    """

    def __init__(self, kinds: Sequence[str], outcomes: Sequence[str] = ()) -> None:
        self.asked: list[str] = []
        self._kinds = {kind: ServiceKindState(kind=kind) for kind in kinds}
        self._outcomes = list(outcomes)
        self._open: list[tuple[str, int]] = []
        self._number = 0

    def run_service(self, name: str) -> list[dict[str, Any]]:
        self.asked.append(name)
        runs: list[dict[str, Any]] = []
        for kind in CLEANS if name == "clean" else (name,):
            last = self._kinds[kind].last
            if last is not None and last.outcome == "done":
                runs.append({"kind": kind, "number": 0, "nothing": "nothing is left"})
                continue
            self._number += 1
            self._open.append((kind, self._number))
            runs.append({"kind": kind, "number": self._number, "nothing": None})
        return runs

    def services(self) -> tuple[OwnServices, dict[str, Any]]:
        shown = OwnServices(enabled=True, kinds=list(self._kinds.values()))
        while self._open:
            kind, number = self._open.pop()
            outcome = self._outcomes.pop(0) if self._outcomes else "done"
            ended = EndedServiceAction(
                number=number, instant="T", outcome=outcome, planned_ms=0, ended_ms=1_500, groups=number
            )
            self._kinds[kind] = ServiceKindState(kind=kind, last=ended)
        return shown, {}


ALL = ("compact-index", "compact-data", "clean-data", "clean-index", "archive", "rollback")


def finished(admin: Admin, clock: ManualClock) -> tuple[UpkeepAction, ...]:
    return Upkeep(cast(AdminClient, admin), clock, lambda _: None, 10_000).finish()


def test_services_run_in_order_and_old_files_are_left_for_the_window() -> None:
    admin, clock = Admin(ALL), ManualClock()
    began_s = clock.monotonic_s()
    done = finished(admin, clock)
    assert admin.asked == [name for name in (*ALL[1::-1], "clean", "archive") for _ in range(2)]
    assert clock.monotonic_s() - began_s >= 11.0
    assert {action.kind for action in done} == set(ALL) - {"rollback"}
    assert all(action.seconds == 1.5 for action in done)


def test_a_table_without_log_files_has_nothing_to_compact_in_its_data() -> None:
    admin = Admin([kind for kind in ALL if kind != "compact-data"])
    finished(admin, ManualClock())
    assert admin.asked == [name for name in ("compact-index", "clean", "archive") for _ in range(2)]


def test_a_voided_action_is_asked_for_again_and_not_for_ever() -> None:
    admin = Admin(ALL, ["voided"])
    finished(admin, ManualClock())
    assert admin.asked[:4] == [*["compact-data"] * 3, "compact-index"]
    with pytest.raises(CliError, match="compact-data was voided"):
        finished(Admin(ALL, ["voided"] * 3), ManualClock())


def test_settings_are_told_beside_their_defaults() -> None:
    config = load_config(Path(upkeep.__file__).parent / "flights.yaml", env={})
    told = {setting.key: (setting.here, setting.default) for setting in settings_beside_defaults(config)}
    assert told["clean.retain"] == ("10s", "1h")
    assert told["archive.max"] == ("20", "600")
    assert told["compact_index.log_files"] == ("10", "120")


def test_checks_fail_for_a_table_that_nobody_keeps_up(tmp_path: Path) -> None:
    path = tmp_path / "table"
    writer = new_table(path)
    for at in range(4):
        writer.commit(orders(("k1", DAYS[0], at)))
    storage = LocalStorage(path)
    assert [check.passed for check in service_checks(storage, 3)] == [False, True, False]
    services = Services(path)
    services.compact_data()
    assert [check.passed for check in service_checks(storage, 5)] == [True, False, True]
    services.clean(services.superseded())
    assert all(check.passed for check in service_checks(storage, 5))
