"""How a stage tells in its figures which input fields it leaves out: `dropped_field/<topic>/<field>` is the
number of records. Kafka allows no `/` in the name of a topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

DROPPED_FIGURE: Final = "dropped_field/"


class DroppedField(NamedTuple):
    """A field that records of a topic have and the table's schema lacks; ``records``: taken without it."""

    topic: str
    field: str
    records: int


def dropped_fields(figures: Mapping[str, float]) -> list[DroppedField]:
    """What the figures of a stage say, in their order."""
    found = []
    for figure, value in figures.items():
        if figure.startswith(DROPPED_FIGURE):
            topic, _, field = figure.removeprefix(DROPPED_FIGURE).partition("/")
            found.append(DroppedField(topic, field, int(value)))
    return found
