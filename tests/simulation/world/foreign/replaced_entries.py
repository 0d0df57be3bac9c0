"""What an INSERT_OVERWRITE or a DELETE_PARTITION does to the record index. Hudi takes out the keys that the
base files of the replaced file groups name, and no others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tests.hudi_rules.slices import Group
from tests.simulation.world.checkers.judge import Look


def keys_of_base_files(look: Look, groups: Collection[Group]) -> set[str]:
    """The keys whose entries go. A row that lies in a log file alone leaves its entry behind."""
    keys = set[str]()
    for group, files in look.view.merged:
        if group in groups and not files[0].is_log:
            keys |= look.reader.group_rows(group, files[:1]).keys()
    return keys


def rows_elsewhere(look: Look, keys: Iterable[str], groups: Collection[Group]) -> list[str]:
    """Those of the keys whose rows moved to other file groups since the base files were written."""
    places = look.content.places
    return sorted(key for key in keys if key in places and places[key] not in groups)


def left_behind(look: Look, keys: Iterable[str]) -> list[str]:
    """Those of the keys that have an index entry and no row."""
    return sorted(key for key in keys if key in look.content.indexed and key not in look.content.rows)
