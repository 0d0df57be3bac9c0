"""Tables that take the same batches in turn, and what the batches took in each."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from bench.hudi_baseline import HudiTable
from bench.whole_run import say
from bench.wide_rows import WideWorkload

_WARM_UP: Final = 4
_WARM_UP_ROWS: Final = 1_000


@dataclass
class Taken:
    """What the batches of one size took in one table. `steps_ms`: step -> ms of each epoch."""

    seconds: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    epochs: list[int] = field(default_factory=list)
    steps_ms: dict[str, list[float]] = field(default_factory=dict)

    def figures(self) -> dict[str, Any]:
        """Medians."""
        steps = {step: round(statistics.median(ms), 1) for step, ms in sorted(self.steps_ms.items())}
        return {
            "median_s": round(statistics.median(self.seconds), 3),
            "median_cpu_s": round(statistics.median(self.cpu_s), 3),
            "seconds": self.seconds,
            "cpu_s": self.cpu_s,
            "median_steps_ms": steps,
        }


class Side:
    """One table that takes batches: `take` returns seconds, CPU seconds, and the epochs it became."""

    def __init__(self, take: Callable[[Any], tuple[float, float, list[int]]]) -> None:
        self._take = take
        self.taken: dict[int, Taken] = {}

    def batch(self, size: int, rows: Any) -> None:
        """One batch, which is counted among those of this size."""
        seconds, cpu_s, epochs = self._take(rows)
        taken = self.taken.setdefault(size, Taken())
        taken.seconds.append(round(seconds, 3))
        taken.cpu_s.append(round(cpu_s, 3))
        taken.epochs += epochs


def in_turn(sides: Mapping[str, Side], workload: WideWorkload, options: Any, what: str) -> None:
    """Four small batches to warm up, then every batch goes to both tables; who is first changes each time."""
    for _ in range(_WARM_UP):
        rows = workload.batch(_WARM_UP_ROWS)
        for side in sides.values():
            side.batch(0, rows)
    for size in options.batches:
        for number in range(options.repeat):
            rows = workload.batch(size)
            names = list(sides) if number % 2 else list(sides)[::-1]
            for name in names:
                sides[name].batch(size, rows)
        told = ", ".join(f"{name} {side.taken[size].figures()['median_s']} s" for name, side in sides.items())
        say(f"{what}, {size} rows: {told}")


def upserts(table: HudiTable) -> Callable[[Any], tuple[float, float, list[int]]]:
    """As `Side` takes batches, by upserts of one Spark session."""

    def take(rows: Any) -> tuple[float, float, list[int]]:
        cpu_s = table.cpu_seconds()
        return table.upsert(rows, False), table.cpu_seconds() - cpu_s, []

    return take
