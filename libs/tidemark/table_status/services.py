"""The table services that Tidemark runs itself: by kind what is open, what ended last, why nothing is due.

Units as in `status`: a field `…_ms` is a time in milliseconds since 1970 by the coordinator's clock, a field
`bytes` a size in bytes. Kinds are texts here and no enumeration, because a newer coordinator may know others.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

CLEAN: Final = "clean"
"""What `tidemark services run` calls both kinds of cleaning together."""
CLEANS: Final = ("clean-data", "clean-index")


class OpenServiceAction(msgspec.Struct, frozen=True, kw_only=True):
    """An action that is planned and not ended.

    ``step``: `planned` (its tasks are worked off), `decided` (it is being committed), or `sweeping` (it is
    visible, and what it made useless is being deleted). ``groups`` and ``bytes``: file groups and bytes that
    the plan names; ``groups_done``: of those, how many tasks have reported. ``worker``: the process that
    asked for the tasks last, "" when none has, or the kind has no tasks.
    """

    number: int
    instant: str
    step: str
    planned_ms: int
    decided_ms: int | None = None
    groups: int = 0
    groups_done: int = 0
    bytes: int = 0
    worker: str = ""


EARLIER: Final = "earlier"


class EndedServiceAction(msgspec.Struct, frozen=True, kw_only=True):
    """The last action of a kind that ended.

    ``outcome``: `done`, `by_other` (another engine completed the instant), `voided`, whose ``reason`` says
    why, or `earlier`: the table's timelines alone say that it was done, by Tidemark or another engine, before
    this coordinator began. Then ``number`` is 0, and there are no figures. ``groups`` and ``bytes``: file
    groups and bytes that it worked on; of a clean or an archival, the files that were deleted and their
    bytes, where these are known.
    """

    number: int
    instant: str
    outcome: str
    planned_ms: int
    ended_ms: int
    groups: int = 0
    bytes: int = 0
    reason: str = ""


class ServiceFailures(msgspec.Struct, frozen=True):
    """Actions of a kind, or steps of its open action, that failed in a row: how many, why the last one did,
    and when it is tried again.
    """

    in_a_row: int
    reason: str
    next_try_ms: int


class ServiceKindState(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of service.

    ``due``: why an action is due, "" when none is; ``not_due``: why none is. ``held_back``: what keeps the
    service from doing all of its work (a savepoint, another writer's pending instant or clock, a restore), as
    texts.
    ``open`` and ``last`` are None when there is no such action; ``failures`` when the last one did not fail.
    """

    kind: str
    due: str = ""
    not_due: str = ""
    held_back: list[str] = []
    open: OpenServiceAction | None = None
    last: EndedServiceAction | None = None
    failures: ServiceFailures | None = None


class OwnServices(msgspec.Struct, frozen=True, kw_only=True):
    """All table services of Tidemark's own.

    ``enabled``: `table_services.enabled`. ``paused``: `tidemark services pause` stopped them, for ``reason``.
    ``behind``: texts about services that do not keep up (a file slice above its limit, an action that takes
    much longer than usual). ``backpressure``: what is done then: `none`, `share` (compactions get more task
    slots), `stretched` (epochs are longer, too) or `slowed` (tagging rests for a part of the time, too).
    ``kinds`` and ``backpressure`` are empty when they are not enabled.
    """

    enabled: bool = False
    paused: bool = False
    reason: str = ""
    behind: list[str] = []
    backpressure: str = ""
    kinds: list[ServiceKindState] = []

    def of(self, kind: str) -> ServiceKindState | None:
        """The state of one kind; None when there is no such kind, or services are not enabled."""
        return next((state for state in self.kinds if state.kind == kind), None)


def named_kinds(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """The kinds that a name of the command line stands for: itself, or both cleans for `clean`.

    Empty when it names none of the known kinds.
    """
    there = tuple(known)
    wanted = CLEANS if name == CLEAN else (name,)
    return tuple(kind for kind in there if kind in wanted)
