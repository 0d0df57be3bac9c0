"""Names below `figures` in the status document, as the assigner's stages report them."""

from __future__ import annotations

from pathlib import Path

from tests.unit.index_assigner.index_world import Assigner, DataTable
from tests.unit.index_assigner.shuffle_world import World
from tidemark.index_assigner.input.positions import earliest
from tidemark.index_assigner.shuffle.stage import ShuffleSettings, ShuffleWork
from tidemark.index_assigner.slots.observer import SlotCounters


def figure_names(folder: Path) -> set[str]:
    """Those that every slot has; what is named after a lane, a reason or a field is left out."""
    world, table = World(), DataTable()
    shuffle = ShuffleWork(
        world.client, world.keyer, ShuffleSettings(world.names, earliest, "s", 1, 1, 1), world.clock
    )
    table.commit_rows({"a": (1, 10)})
    assigner = Assigner(table, folder / "rocks")
    try:
        found = {
            "shuffle": {**shuffle.stats(), **SlotCounters().stats()},
            "assign": {**assigner.index.stats(), **SlotCounters().stats()},
        }
    finally:
        assigner.close()
        shuffle.close()
    return {f"figure {stage} {name}" for stage, figures in found.items() for name in figures}
