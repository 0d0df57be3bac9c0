"""Entries of the record index that Hudi leaves behind: it takes those of replaced file groups out by base
files alone, so the entry of a row that lay in a log file alone stays, and names a file group that nobody
reads.
"""

from __future__ import annotations

from tests.simulation.world.checkers.table import Content
from tests.simulation.world.checkers.timelines import Place, Timeline


def left_entries(found: Content, timeline: Timeline) -> dict[str, Place]:
    """Those that may be there, by key: the key has no row, and the file group went with its rows."""
    without = found.indexed.keys() - found.places.keys()
    return {key: found.indexed[key] for key in without if found.indexed[key] in timeline.without_rows}
