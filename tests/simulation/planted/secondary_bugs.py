"""A bug in keeping a secondary index that only a whole world shows. Those in the entries of one epoch are in
`tests/simulation/test_simpler_secondary_indexes.py`.
"""

from __future__ import annotations

from tests.simulation.planted.mutant import Ground, planted
from tidemark.index_assigner.shuffle import keyed_rows


@planted("G6")
def long_values_are_tagged(ground: Ground) -> None:
    """A record whose value and key are too long for an entry is a dead letter before it is tagged. Here it is
    tagged: its epoch can never be written.
    """
    ground.replace(keyed_rows, "values_too_long", lambda *_: [])
