"""An index that another writer defines while an epoch is written: `status` and the metric of the alert name
it until it is whole.
"""

from __future__ import annotations

from pathlib import Path

from tests.simulation.commit_path import CommitPath
from tests.simulation.kept_secondary import NAME, define, switch_on
from tests.simulation.test_status_details import taken
from tests.simulation.test_unfinished_index import SOON_S, second_written, waits
from tests.unit.observability.test_what_is_not_known_yet import Shown
from tidemark.commit_coordinator.commit.view import take_view
from tidemark.hudi_format.model import InstantGenerator
from tidemark.table_status.warnings import WarningKind

WAITING = f'foreign_index_waiting{{index="{NAME}"}}'


def waits_for(path: CommitPath) -> list[str]:
    """What `status` says that commits wait for."""
    assert path.coordinator is not None
    warnings = taken(path, path.coordinator.seen).warnings
    return [warning.text for warning in warnings if warning.kind is WarningKind.COMMITS_WAIT]


def page(path: CommitPath, shown: Shown) -> dict[str, float]:
    """What Prometheus reads."""
    coordinator, context = path.coordinator, path.context
    assert coordinator is not None
    assert context is not None
    shown.board.show(
        take_view(
            context.fold(),
            coordinator.seen,
            coordinator.doing,
            context.term,
            path.clock.now_ms(),
            context.table.inputs,
        )
    )
    return shown.page()


def test_status_and_metric_name_the_index_until_it_is_listed(tmp_path: Path) -> None:
    path, shown = second_written(tmp_path / "t"), Shown(tmp_path)
    assert (waits_for(path), WAITING in page(path, shown)) == ([], False)
    define(path.storage, "v")
    waits(path)
    (told,) = waits_for(path)
    assert told.startswith("commits wait: ")
    assert NAME in told
    assert page(path, shown)[WAITING] == 1.0
    assert page(path, shown)["foreign_clustering_waiting"] == 0.0
    switch_on(path.storage, 2, at=InstantGenerator(path.clock).next())
    path.clock.advance(SOON_S)
    path.run_until_idle()
    assert (waits_for(path), WAITING in page(path, shown)) == ([], False)
