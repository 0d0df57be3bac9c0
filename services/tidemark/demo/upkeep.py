"""The demo's table services: after the stream each kind runs once more, so that the table ends compacted,
cleaned and archived; and the settings that make this fit into a minute, beside the defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from tidemark.config import TableConfigFile
from tidemark.config.effective import effective_settings
from tidemark.config.reference import known_keys
from tidemark.console.admin_client import AdminClient
from tidemark.console.errors import CliError
from tidemark.demo.report import Check, UpkeepAction, UpkeepSetting
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.table_view import TableView
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.retry import Deadline

_SECTION: Final = "table_services."
_COMPACTIONS: Final = ("compact-data", "compact-index")
_AFTERWARDS: Final = ("clean", "archive")
# An action takes a part of a large table, and archival one timeline.
_ACTIONS_MAX: Final = 20
_TRIES: Final = 3
_ACTION_S: Final = 120.0
_TICK_S: Final = 0.25


class Upkeep:
    """Runs the services of a table and waits for each."""

    def __init__(self, admin: AdminClient, clock: Clock, say: Callable[[str], None], retain_ms: int) -> None:
        self._admin = admin
        self._clock = clock
        self._say = say
        self._retain_s = retain_ms / 1_000

    def finish(self) -> tuple[UpkeepAction, ...]:
        """Compacts, waits until the readers' window is over, cleans, archives. Returns what each kind did.

        Raises CliError when an action does not end, or is voided again and again.
        """
        kinds = {state.kind for state in self._admin.services()[0].kinds}
        for kind in _COMPACTIONS:
            if kind in kinds:
                self._run(kind)
        self._say(f"compacted; files that readers may still need stay for {self._retain_s:g} s")
        self._clock.sleep(self._retain_s + 1.0)
        for kind in _AFTERWARDS:
            self._run(kind)
        return tuple(self._done())

    def _run(self, name: str) -> None:
        """Runs a service until it has nothing to do any more."""
        voided = 0
        for _ in range(_ACTIONS_MAX):
            runs = [run for run in self._admin.run_service(name) if run["number"]]
            if not runs:
                return
            voided += any(self._outcome(run) == "voided" for run in runs)
            if voided == _TRIES:
                raise CliError(f"table service {name} was voided: `tidemark services list` says why")

    def _outcome(self, run: dict[str, Any]) -> str:
        deadline = Deadline(self._clock, _ACTION_S)
        while True:
            state = self._admin.services()[0].of(run["kind"])
            last = state.last if state is not None else None
            if last is not None and last.number >= run["number"]:
                return last.outcome
            deadline.check(f"table service {run['kind']}")
            self._clock.sleep(_TICK_S)

    def _done(self) -> Iterator[UpkeepAction]:
        for state in self._admin.services()[0].kinds:
            if (last := state.last) is not None and last.number:
                yield UpkeepAction(state.kind, last.groups, (last.ended_ms - last.planned_ms) / 1_000)


def settings_beside_defaults(config: TableConfigFile) -> tuple[UpkeepSetting, ...]:
    """The settings by which the demo differs from the defaults."""
    defaults = {key.path: key.default for key in known_keys()}
    return tuple(
        UpkeepSetting(setting.key.removeprefix(_SECTION), str(setting.value), str(defaults[setting.key]))
        for setting in effective_settings(config)
        if setting.key.startswith(_SECTION) and not setting.is_default and setting.origin is not None
    )


def service_checks(storage: Storage, archive_max: int) -> tuple[Check, ...]:
    """That the table is compacted, cleaned and archived, by its files."""
    snapshot = MetadataTableSnapshot.load(storage)
    listed = snapshot.files.names()
    slices = TableView.of(storage, snapshot.data_timeline).slices(listed)
    in_use = sum(len(file_slice.paths()) for file_slice in slices)
    writes = sum(instant.action.is_write for instant in snapshot.data_timeline.completed())
    return (
        Check.of_counts(
            "log files that are not compacted", 0, sum(len(file_slice.log_files) for file_slice in slices)
        ),
        Check.of_counts("data files that no reader needs", 0, sum(map(len, listed.values())) - in_use),
        Check("commits on the active timeline", f"at most {archive_max}", str(writes), writes <= archive_max),
    )
