"""A rewind ends every lease of a file group."""

from __future__ import annotations

from tests.simulation.test_assign_slots import alone
from tests.unit.index_assigner.assign_rig import Event


def test_after_a_rewind_no_row_goes_into_a_file_group_that_was_leased_before_it():
    """Another writer may have replaced the group; leases before the rewind know nothing of it."""
    cluster, only = alone(seed=9)
    cluster.leases.room = 1_000
    cluster.feed([Event(f"before-{number}", "d0", at=1) for number in range(8)])
    cluster.settle(only)
    cluster.coordinator.commit()
    made = cluster.leases.made
    assert made > 0
    cluster.coordinator.rewind()
    cluster.feed([Event(f"after-{number}", "d0", at=1) for number in range(8)])
    cluster.settle(only)
    cluster.coordinator.commit()
    places = {key: place for key, (_, place) in cluster.table.index.items()}
    leased_before = {f"fg-{number}" for number in range(made)}
    assert {places[f"before-{number}"] for number in range(8)} <= leased_before
    assert leased_before.isdisjoint(places[f"after-{number}"] for number in range(8))
