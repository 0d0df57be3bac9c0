"""The script that a seed has in a run that takes seeds of all kinds: fixed ones, those that change with the
commit, and those of `make simulate`.
"""

from __future__ import annotations

from random import Random
from typing import Final

from tests.simulation.world.generate import generate
from tests.simulation.world.richer import QUOTED
from tests.simulation.world.script import Script
from tests.simulation.world.with_partitioned import has_services, partitioned
from tests.simulation.world.with_secondary import has_secondary
from tests.simulation.world.with_stats import keeps_stats

_USUAL: Final = 1_000
"""Seeds below have a global record index: tests name them for what their worlds show."""
_ONE_OF: Final = 6


def is_partitioned(seed: int) -> bool:
    """Whether the table of the seed's world has a partitioned record index: one of ten has. Those in which
    services run take too long to be drawn here.
    """
    is_drawn = Random(f"kind of the index of {seed}").randrange(_ONE_OF) == 0
    return seed >= _USUAL and seed not in QUOTED and is_drawn and not has_services(seed)


def has_other_indexes(seed: int) -> bool:
    """Whether the table of the seed's world has another index than a global record index alone."""
    return is_partitioned(seed) or keeps_stats(seed) or has_secondary(seed)


def drawn(seed: int) -> Script:
    """The script of the seed; equal seeds give equal scripts."""
    return partitioned(seed) if is_partitioned(seed) else generate(seed)
