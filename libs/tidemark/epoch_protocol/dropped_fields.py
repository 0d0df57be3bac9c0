"""Input fields that a stage leaves out, as entries among its stats.

The stat `dropped_field/<topic>/<field>` holds the number of records; Kafka allows no `/` in a topic's name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

DROPPED_STAT: Final = "dropped_field/"


class DroppedField(NamedTuple):
    """A field of a topic's records that the table's schema lacks; ``records`` were taken without it."""

    topic: str
    field: str
    records: int


def dropped_fields(stats: Mapping[str, float]) -> list[DroppedField]:
    """The dropped fields among a stage's stats (name -> value), in the order of the stats."""
    dropped = []
    for stat, value in stats.items():
        if stat.startswith(DROPPED_STAT):
            topic, _, field = stat.removeprefix(DROPPED_STAT).partition("/")
            dropped.append(DroppedField(topic, field, int(value)))
    return dropped
