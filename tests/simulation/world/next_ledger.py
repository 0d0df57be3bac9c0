"""The topics of a world are lost, and `tidemark table adopt --new-ledger` begins others."""

from __future__ import annotations

from tests.simulation.world.checkers.topics import Since
from tests.simulation.world.world import World
from tidemark.commit_coordinator.offline.new_ledger import NewLedger, former_state, new_ledger


def begin_new_ledger(before: World) -> NewLedger:
    """What an operator does when none of the table's services runs. ``before``: it came to rest.

    `World(script, before.ground)` goes on: with its clock, table, input, and the disks of its services; what
    is right is judged from the rows that are there, and from the input behind what was fed. The other engine
    of that world knows nothing of the former one: it may have nothing in flight, and archives no more.
    """
    assert not any(actor.process.alive for actor in before._actors())
    ground, ends = before.ground, before._input_ends()
    # The old judge would look for what is right by the old topics.
    ground.storage.changed = lambda path: None
    begun = new_ledger(before.config, before.client, ground.storage, ground.clock, ground.ids)
    state = former_state(before.config, before.client, ground.storage, ground.clock)
    assert state is not None
    taken = {lane: end for lane, end in ends.items() if end}
    if before.setup.is_sharded:
        assign_next = {lane.rpartition(":")[2]: end for lane, end in taken.items()}
        ground.since = Since(before.judge.epoch, state.generation, assign_next=assign_next)
    else:
        ground.since = Since(before.judge.epoch, state.generation, taken)
    ground.gone = dict(before.judge._model.tombstones)
    return begun
