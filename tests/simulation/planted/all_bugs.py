"""All planted bugs, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.simulation.planted import (
    coordinator_bugs,
    index_bugs,
    ledger_bugs,
    partitioned_bugs,
    secondary_bugs,
    service_bugs,
    stats_bugs,
)
from tests.simulation.planted.mutant import Planted

BUGS: Final[Mapping[str, Planted]] = {
    each.name: each
    for module in (
        ledger_bugs,
        coordinator_bugs,
        index_bugs,
        partitioned_bugs,
        secondary_bugs,
        service_bugs,
        stats_bugs,
    )
    for each in vars(module).values()
    if isinstance(each, Planted)
}
