"""The storage refuses a service at one of its steps: the disk is full, a folder is read-only, a file is
missing. The action fails with a reason that names the file and what to do, is tried again with growing
pauses, and no epoch waits. Once the storage is whole again the service does its work.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest

from tests.simulation.test_deaths_of_services import check
from tests.simulation.watched_life import SOON, At, Step, WatchedLife, nothing
from tidemark.commit_coordinator.table_services.rollbacks import RollBackDead
from tidemark.commit_coordinator.table_services.shown import ShownServices
from tidemark.epoch_protocol.service_entries import ServiceKind, ServiceVoided
from tidemark.hudi_format.commit.markers import MarkerType, create_marker, marker_folder
from tidemark.hudi_format.errors import FileMissingError
from tidemark.hudi_format.publication.unfenced import Unfenced
from tidemark.hudi_format.timeline import load_timeline
from tidemark.table_status.services import ServiceKindState

SECONDS_MAX: Final = 200
TRIES: Final = 4
ACTIONS: Final = 4
EPOCHS_S: Final = 8
GROUPS: Final = 2
"""File groups of the table, in two partitions. Each costs time, and what is refused is refused for all."""
_WRITING: Final = ("create", "replace", "publish", "write_in_pieces", "make_dir")
_CHANGING: Final = (*_WRITING, "link", "rename", "rename_over", "delete", "touch")
_READING: Final = ("read", "read_range", "open_input")
STORE: Final = ".hoodie/.aux/tidemark/store/"
INDEX: Final = ".hoodie/metadata/record_index/"
ARCHIVED: Final = ".hoodie/timeline/"
_LOCK: Final = ".hoodie/lock/"

Fault = Callable[[WatchedLife, str, str], None]
"""Given the life, a call and its path; raises what the storage says."""


def full_disk(life: WatchedLife, call: str, path: str) -> None:
    if call in _WRITING and not path.startswith(_LOCK):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), f"{life.plain.base_uri}/{path}")


def read_only(folder: str) -> Fault:
    def refuse(life: WatchedLife, call: str, path: str) -> None:
        if call in _CHANGING and path.startswith(folder):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), f"{life.plain.base_uri}/{path}")

    return refuse


def missing(folder: str) -> Fault:
    def refuse(life: WatchedLife, call: str, path: str) -> None:
        if call in _READING and path.startswith(folder):
            raise FileMissingError(f"no file {path!r} under {life.plain.base_uri}")

    return refuse


FREE, WRITABLE, GONE = "free space", "writable", "tidemark verify"
Kind = ServiceKind
DATA: Final = "d"
CASES: Final = {
    "compact-data full disk": (full_disk, FREE, Kind.COMPACT_DATA, (Step.PLAN, Step.TASK, Step.COMMIT)),
    "compact-data read-only": (read_only(DATA), WRITABLE, Kind.COMPACT_DATA, (Step.COMMIT,)),
    "compact-data missing": (missing(DATA), GONE, Kind.COMPACT_DATA, (Step.TASK,)),
    "compact-data plan gone": (missing(STORE), GONE, Kind.COMPACT_DATA, (Step.SWEEP,)),
    "compact-index full disk": (full_disk, FREE, Kind.COMPACT_INDEX, (Step.TASK, Step.COMMIT)),
    "compact-index read-only": (read_only(INDEX), WRITABLE, Kind.COMPACT_INDEX, (Step.COMMIT,)),
    "compact-index missing": (missing(INDEX), GONE, Kind.COMPACT_INDEX, (Step.TASK,)),
    "clean-data full disk": (full_disk, FREE, Kind.CLEAN_DATA, (Step.PLAN, Step.COMMIT)),
    "clean-data read-only": (read_only(DATA), WRITABLE, Kind.CLEAN_DATA, (Step.SWEEP,)),
    "clean-data plan gone": (missing(STORE), GONE, Kind.CLEAN_DATA, (Step.SWEEP,)),
    "clean-index full disk": (full_disk, FREE, Kind.CLEAN_INDEX, (Step.COMMIT,)),
    "clean-index read-only": (read_only(INDEX), WRITABLE, Kind.CLEAN_INDEX, (Step.SWEEP,)),
    "archive full disk": (full_disk, FREE, Kind.ARCHIVE, (Step.PLAN, Step.COMMIT)),
    "archive read-only": (read_only(ARCHIVED), WRITABLE, Kind.ARCHIVE, (Step.COMMIT, Step.SWEEP)),
    "archive plan gone": (missing(STORE), GONE, Kind.ARCHIVE, (Step.DECIDE,)),
    "rollback full disk": (full_disk, FREE, Kind.ROLLBACK, (Step.COMMIT,)),
    "rollback read-only": (read_only(ARCHIVED), WRITABLE, Kind.ROLLBACK, (Step.COMMIT,)),
}


@dataclass
class Refusal:
    """Refuses at one place. ``tries``: number of the action, 0 before it is planned -> when the service came
    there (Unix epoch, ms). ``ended_ms``: number of the action -> when it ended.
    """

    life: WatchedLife
    at: At
    fault: Fault
    tries: dict[int, list[int]] = field(default_factory=dict)
    ended_ms: dict[int, int] = field(default_factory=dict)

    def __call__(self, at: At, call: str, path: str) -> None:
        if at != self.at:
            return
        try:
            self.fault(self.life, call, path)
        except Exception:
            context = self.life.context
            assert context is not None
            held = context.fold().state.services.get(at.kind)
            times = self.tries.setdefault(0 if held is None else held.planned.service, [])
            if not times or times[-1] != context.clock.now_ms():
                times.append(context.clock.now_ms())
            raise

    def look(self) -> None:
        """Notes the end of the kind's newest action; to be called each second."""
        assert self.life.coordinator is not None
        ended = self.life.coordinator.services.ended.get(self.at.kind)
        if ended is not None:
            self.ended_ms[ended.planned.service] = ended.ended_ms

    def is_enough(self) -> bool:
        """One action failed often, or several failed one after the other."""
        return max(map(len, self.tries.values()), default=0) >= TRIES or len(self.tries) >= ACTIONS

    def pauses(self) -> list[int]:
        """Those within the action that failed most often; where each failed but a few times, those from the
        end of one to the plan of the next.
        """
        longest = max(self.tries.values(), key=len)
        if len(longest) < TRIES:
            planned = self.life.planned_services()
            return [
                planned[later].planned_ms - self.ended_ms[earlier] for earlier, later in pairwise(self.tries)
            ]
        return [later - earlier for earlier, later in pairwise(longest)]


@pytest.mark.parametrize(
    ("name", "step"), [(name, step) for name, (_, _, _, steps) in CASES.items() for step in steps]
)
def test_a_service_that_the_storage_refuses(tmp_path: Path, name: str, step: Step) -> None:
    fault, remedy, kind, _ = CASES[name]
    life = WatchedLife(tmp_path / "t", GROUPS)
    refusal = Refusal(life, At(kind, step), fault)
    life.on_call = refusal
    seconds, reasons = 0, list[str]()
    while not refusal.is_enough():
        assert seconds < SECONDS_MAX, refusal.tries
        if kind is ServiceKind.ROLLBACK and seconds == 3:
            life.leave_dead_write()
        life.second()
        seconds += 1
        refusal.look()
        if refusal.tries:
            reasons.append(shown(life, kind))
    pauses = refusal.pauses()
    assert pauses == sorted(pauses)
    assert pauses[-1] >= 1.5 * pauses[0]
    said = [reason for reason in reasons if reason]
    assert len(said) > len(reasons) / 2, "operators do not see it"
    assert all(remedy in reason and life.plain.base_uri in reason for reason in said), set(said)
    check_epochs_go_on(life)
    life.on_call = nothing
    state = life.state()
    least = state.services[kind].planned.service if kind in state.services else state.next_service
    for _ in range(SECONDS_MAX):
        if done(life, kind, least):
            break
        life.second()
    assert done(life, kind, least)
    check(life)


@pytest.mark.parametrize("step", [Step.VOID, Step.SWEEP])
def test_an_action_has_ended_though_its_folder_cannot_be_deleted(tmp_path: Path, step: Step) -> None:
    """Else the kind would begin the next one at once, and forget that this one failed."""
    life = WatchedLife(tmp_path / "t", GROUPS)
    kind = ServiceKind.COMPACT_DATA
    stuck = read_only(".hoodie/.aux/tidemark/terms/")

    def refuse(at: At, call: str, path: str) -> None:
        if at == At(kind, step):
            stuck(life, call, path)
        elif at == At(kind, Step.TASK) and step is Step.VOID:
            full_disk(life, call, path)

    life.on_call = refuse
    for _ in range(30):
        life.second()
    coordinator = life.coordinator
    assert coordinator is not None
    seen, ended = coordinator.seen.services.kind(kind), coordinator.services.ended[kind]
    numbers = [number for number, planned in life.planned_services().items() if planned.kind is kind]
    assert ended.planned.service in numbers
    assert seen.ended_ms == ended.ended_ms
    voided = [number for number in numbers if isinstance(life.ended().get(number), ServiceVoided)]
    assert seen.failures == len(voided)
    assert bool(voided) is (step is Step.VOID)


def test_a_dead_write_that_cannot_be_undone_holds_up_neither_epochs_nor_others_that_die(
    tmp_path: Path,
) -> None:
    """A marker names another instant's file. The write is named, and tried again when an operator asks."""
    life = WatchedLife(tmp_path / "t", GROUPS)
    for _ in range(3):
        life.second()
    poisoned = life.leave_dead_write()
    marked = f"d0/{'0' * 8}-0000-4000-8000-{'0' * 12}-0_0-0-0_20240101000000000.parquet"
    create_marker(Unfenced(life.plain), poisoned, marked, MarkerType.CREATE)
    until(life, lambda: any(poisoned in text for text in state_of(life, Kind.ROLLBACK).held_back))
    assert state_of(life, Kind.ROLLBACK).failures is None, "the kind works"
    later = life.leave_dead_write()
    until(life, lambda: not load_timeline(life.plain).contains(later))
    assert load_timeline(life.plain).contains(poisoned)
    check_epochs_go_on(life)
    life.plain.delete_tree(marker_folder(poisoned))
    answers = list[tuple[int, str]]()
    assert life.coordinator is not None
    life.coordinator.services.want(Kind.ROLLBACK, lambda number, why: answers.append((number, why)))
    until(life, lambda: not load_timeline(life.plain).contains(poisoned))
    ((number, _),) = answers
    assert number > 0
    until(life, lambda: not state_of(life, Kind.ROLLBACK).held_back)
    check(life)


def until(life: WatchedLife, is_so: Callable[[], bool]) -> None:
    for _ in range(SECONDS_MAX):
        if is_so():
            return
        life.second()
    raise AssertionError("it never came")


def check_epochs_go_on(life: WatchedLife) -> None:
    """Whatever a service does, and whether or not slices get longer."""
    before = life.state().committed.epoch
    for _ in range(EPOCHS_S):
        life.second()
    life.settle()
    assert life.state().committed.epoch - before >= EPOCHS_S / 3


def done(life: WatchedLife, kind: ServiceKind, least: int) -> bool:
    assert life.coordinator is not None
    ended = life.coordinator.services.ended.get(kind)
    return ended is not None and not ended.reason and ended.planned.service >= least


def shown(life: WatchedLife, kind: ServiceKind) -> str:
    """Why the kind's last action failed, as operators see it."""
    failures = state_of(life, kind).failures
    return failures.reason if failures is not None else ""


def state_of(life: WatchedLife, kind: ServiceKind) -> ServiceKindState:
    """The kind as operators see it."""
    coordinator, context, now_ms = life.coordinator, life.context, life.clock.now_ms()
    assert coordinator is not None
    assert context is not None
    rollbacks = coordinator.services.handlers[Kind.ROLLBACK]
    assert isinstance(rollbacks, RollBackDead)
    left_out = {Kind.ROLLBACK: rollbacks.left_out}
    own = ShownServices(coordinator.services, SOON, life.placement, left_out).of(
        context.fold().state, coordinator.seen.services, now_ms
    )
    found = own.of(kind)
    assert found is not None
    return found
