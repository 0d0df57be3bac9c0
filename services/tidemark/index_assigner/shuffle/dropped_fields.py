"""Fields that the table's schema lacks and records were taken without: counted, and named in the log.

Counts of a stage go to `tidemark status`, which warns, and to the metrics. They begin anew with the process.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from tidemark.epoch_protocol.dropped_fields import DROPPED_FIGURE
from tidemark.record_formats.decoder import DROPPED_MAX, MORE_FIELDS, Int64Array
from tidemark.stream_runtime.clock import Clock

FieldCounts = Counter[tuple[str, str]]
"""Records by (topic, field)."""
_LOG_AGAIN_S: Final = 3_600.0
# Of one topic; what one decoder tells apart, however many decoders there are (Debezium: one a schema).
_FIELDS_MAX: Final = DROPPED_MAX
_log = logging.getLogger("tidemark.assigner")


def field_counts(dropped: Mapping[str, Int64Array], runs: Sequence[tuple[str, int]]) -> FieldCounts:
    """``runs``: topic and number of records of each run of the batch that the positions are of, in order."""
    counts: FieldCounts = Counter()
    ends = np.cumsum([size for _, size in runs])
    for name, positions in dropped.items():
        of_run = np.bincount(np.searchsorted(ends, positions, side="right"), minlength=len(runs))
        for (topic, _), count in zip(runs, of_run.tolist(), strict=True):
            if count:
                counts[topic, name] += count
    return counts


class DroppedFields:
    """Of one stage. ``add`` what counts; the first of each field is logged at once, then one line an hour."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._counts: FieldCounts = Counter()
        self._logged_s: dict[tuple[str, str], float] = {}
        self._told: FieldCounts = Counter()

    def add(self, counts: FieldCounts) -> None:
        """Records of a transaction that counts."""
        now_s = self._clock.monotonic_s()
        for (topic, name), count in counts.items():
            place = topic, self._kept(topic, name)
            self._counts[place] += count
            if now_s - self._logged_s.get(place, -_LOG_AGAIN_S) >= _LOG_AGAIN_S:
                self._logged_s[place] = now_s
                new = self._counts[place] - self._told[place]
                self._told[place] = self._counts[place]
                _log.warning(
                    "topic %s has the field %s, which table.schema lacks: left out of %d records%s",
                    topic,
                    place[1],
                    new,
                    " more" if new != self._counts[place] else "",
                )

    def _kept(self, topic: str, name: str) -> str:
        if (topic, name) in self._counts:
            return name
        known = sum(1 for other, _ in self._counts if other == topic)
        return name if known < _FIELDS_MAX else MORE_FIELDS

    def figures(self) -> dict[str, float]:
        """For the stage's report: see `epoch_protocol.dropped_fields`."""
        return {f"{DROPPED_FIGURE}{topic}/{name}": float(n) for (topic, name), n in self._counts.items()}
