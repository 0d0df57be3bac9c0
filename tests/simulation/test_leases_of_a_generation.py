"""Leased file groups beside rewinds that an assigner does not read."""

from __future__ import annotations

from tests.simulation.test_assign_slots import alone, finish
from tests.unit.index_assigner.assign_rig import Event


def test_leases_end_with_a_rewind_that_an_assigner_never_reads():
    """It fell behind, the rewind's entry was trimmed away, and its fold comes from a snapshot: the rewind was
    for another writer's commit, which may have replaced what is leased.
    """
    cluster, only = alone(seed=7)
    cluster.feed([Event("a", "d0", 1), Event("b", "d0", 2)])
    cluster.settle(only)
    cluster.coordinator.commit()
    assert len(cluster.leases.asked) == 1, "there is room for three more"
    cluster.coordinator.rewind()
    cluster.coordinator.trim()
    cluster.feed([Event("c", "d0", 3)])
    cluster.settle(only)
    assert len(cluster.leases.asked) == 2
    finish(cluster, only)
