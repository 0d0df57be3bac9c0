"""Counts and logs the fields of input records that the table's schema lacks, and that were left out.

A stage's counts go to `tidemark status`, which warns, and to the metrics. They start at 0 with each process.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from tidemark.epoch_protocol.dropped_fields import DROPPED_STAT
from tidemark.record_formats.decoder import DROPPED_MAX, MORE_FIELDS, Int64Array
from tidemark.stream_runtime.clock import Clock

FieldCounts = Counter[tuple[str, str]]
"""(topic, field) -> number of records."""
_LOG_AGAIN_S: Final = 3_600.0
# Names kept per topic. One decoder keeps as many; Debezium has one decoder per schema, so there may be more.
_FIELDS_MAX: Final = DROPPED_MAX
_log = logging.getLogger("tidemark.assigner")


def field_counts(dropped: Mapping[str, Int64Array], runs: Sequence[tuple[str, int]]) -> FieldCounts:
    """Counts records by topic and field.

    ``dropped``: field -> positions of records in a batch. ``runs``: the batch as runs of records of one
    topic: (topic, number of records), in order.
    """
    counts: FieldCounts = Counter()
    # The runs' ends tell a position's run: with runs (a, 3), (b, 2) the ends are [3, 5]; positions 1 and 4
    # are inserted to the right of no end (run 0, topic a) and of the end 3 (run 1, topic b).
    ends = np.cumsum([size for _, size in runs])
    for name, positions in dropped.items():
        of_run = np.bincount(np.searchsorted(ends, positions, side="right"), minlength=len(runs))
        for (topic, _), count in zip(runs, of_run.tolist(), strict=True):
            if count:
                counts[topic, name] += count
    return counts


class DroppedFields:
    """The counts of one stage. A field is logged at its first record, then at most once an hour."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._counts: FieldCounts = Counter()
        self._logged_s: dict[tuple[str, str], float] = {}
        self._told: FieldCounts = Counter()

    def add(self, counts: FieldCounts) -> None:
        """Adds the records of a transaction that counts."""
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

    def stats(self) -> dict[str, float]:
        """The counts as stats of the stage's report, named as in `epoch_protocol.dropped_fields`."""
        return {f"{DROPPED_STAT}{topic}/{name}": float(n) for (topic, name), n in self._counts.items()}
