"""Whether a restore took the record index along: told by when the index was built."""

from __future__ import annotations

import pytest

from hudi_format.errors import UnsupportedTableError
from hudi_format.metadata_table.restored_index import check_index_is_of_the_rows
from hudi_format.timeline import Action, Instant, State, Timeline

BOOTSTRAP = "00000000000000001"


def completed(requested: str, completion: str, action: Action = Action.DELTA_COMMIT) -> Instant:
    return Instant(requested, action, State.COMPLETED, completion)


class Archive:
    """Of a timeline whose first commit, or whose bootstrap, is archived."""

    def __init__(self, completion: str, requested: str = BOOTSTRAP) -> None:
        self._times = {requested: completion, "20260101000000000": "20260101000000001"}

    def completion_times(self) -> dict[str, str]:
        return self._times


def at(minute: int) -> str:
    return f"202601020{minute // 60}{minute % 60:02d}00000"


# Commits at 10 and 20, one at 30 that was taken back by the restore of 50 to 60, one at 70.
KEPT = [completed(at(9), at(10)), completed(at(19), at(20))]
RESTORE = completed(at(50), at(60), Action.RESTORE)
LATER = completed(at(69), at(70))


@pytest.mark.parametrize("archived", [False, True])
@pytest.mark.parametrize(
    ("built", "is_of_the_rows"), [(5, True), (15, True), (45, False), (55, False), (65, True)]
)
def test_an_index_that_was_built_before_a_restore_took_commits_back_is_refused(
    built: int, is_of_the_rows: bool, archived: bool
) -> None:
    data = Timeline((*KEPT, RESTORE, LATER))
    own = completed(at(69), at(70))
    metadata = Timeline((own,), Archive(at(built)))  # type: ignore[arg-type]
    if not archived:
        metadata = Timeline((completed(BOOTSTRAP, at(built)), own))
    if is_of_the_rows:
        check_index_is_of_the_rows(data, metadata)
        return
    with pytest.raises(UnsupportedTableError, match=f"restore {at(50)} .*{at(built)}.*double keys"):
        check_index_is_of_the_rows(data, metadata)


def test_a_second_restore_is_judged_by_what_it_kept() -> None:
    again = completed(at(80), at(90), Action.RESTORE)
    data = Timeline((*KEPT, RESTORE, LATER, again))
    for built in (65, 95):
        check_index_is_of_the_rows(data, Timeline((completed(BOOTSTRAP, at(built)),)))
    for built in (55, 75, 85):
        with pytest.raises(UnsupportedTableError):
            check_index_is_of_the_rows(data, Timeline((completed(BOOTSTRAP, at(built)),)))


@pytest.mark.parametrize(("built", "is_of_the_rows"), [(5, True), (15, True), (45, False), (65, True)])
def test_what_the_restore_kept_may_be_archived_since(built: int, is_of_the_rows: bool) -> None:
    """Hudi archives the commits before a restore, and never the restore."""
    data = Timeline((RESTORE, LATER), Archive(at(20), at(19)))  # type: ignore[arg-type]
    metadata = Timeline((completed(BOOTSTRAP, at(built)),))
    if is_of_the_rows:
        check_index_is_of_the_rows(data, metadata)
        return
    with pytest.raises(UnsupportedTableError):
        check_index_is_of_the_rows(data, metadata)


def test_an_index_is_built_at_any_time_where_nothing_was_restored() -> None:
    data = Timeline((*KEPT, LATER))
    check_index_is_of_the_rows(data, Timeline((completed(BOOTSTRAP, at(45)),)))
