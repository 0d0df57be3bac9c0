"""What one round of the campaign is given."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.cluster import COMPACTS_AT
from tests.chaos.index_kinds import PARTITIONED, PLAIN, IndexKind


@dataclass(frozen=True)
class Settings:
    """`patience` multiplies every deadline; `rate`: input records a second on `keys` keys; `rest`: how many
    times as long as a view took hudi-rs rests before the next, and as usual index commands do; `compacts_at`,
    `separate`: as in `Cluster`; `index_kills`: as in `IndexCommands`.
    """

    folder: Path
    seed: int
    table_type: str = "merge_on_read"
    nodes: int = 1
    patience: float = 1.0
    rate: float = 120.0
    keys: int = 250
    hudi_on_spark: bool = False
    no_spark: bool = False
    services: bool = False
    compacts_at: int = COMPACTS_AT
    separate: bool = False
    rest: float = 1.0
    index: IndexKind = PLAIN
    index_kills: float = math.inf

    @property
    def by_partition(self) -> bool:
        """Rows are known by partition and key."""
        return self.index.record_index == PARTITIONED

    @property
    def table(self) -> str:
        """What differs from round to round, in words."""
        apart = ", services serve" if self.separate else ""
        return f"{self.table_type}, index {self.index.name}, {self.nodes} brokers{apart}"

    @property
    def options(self) -> str:
        """The same as options of the command line, which fix it."""
        apart = " --separate" if self.separate else ""
        index = f"--index {self.index.record_index} --secondary {self.index.secondary}"
        return f"--seed {self.seed} --table-type {self.table_type} --brokers {self.nodes} {index}{apart}"
