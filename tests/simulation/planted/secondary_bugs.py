"""Bugs in keeping a secondary index that only a whole world shows. Those in the entries of one epoch are in
`tests/simulation/test_simpler_secondary_indexes.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from tests.simulation.planted.coordinator_bugs import without_unfinished
from tests.simulation.planted.mutant import Ground, planted
from tests.simulation.world.checkers.secondary import NAME
from tidemark.commit_coordinator.commit import kept_indexes, served_table, unfinished_index
from tidemark.commit_coordinator.offline import index_command
from tidemark.hudi_format.file_group.value_changes import (
    RowsChanged,
    ValueChanges,
    ValuePairs,
    values_changed,
)
from tidemark.hudi_format.index_definitions import (
    read_index_definitions,
    secondary_index_definition,
    write_index_definitions,
)
from tidemark.hudi_format.metadata_table import index_creation, secondary_creation
from tidemark.hudi_format.metadata_table.partitions.secondary_index_codec import group_of
from tidemark.hudi_format.metadata_table.secondary_layout import SecondaryLayout, secondary_layouts
from tidemark.hudi_format.storage.base import Storage
from tidemark.index_assigner.shuffle import keyed_rows
from tidemark.stream_writer import secondary_task

_CONFIGURED_GROUPS = 3
"""Another number than the indexes of worlds have groups."""


@planted("G6")
def long_values_are_tagged(ground: Ground) -> None:
    """A record whose value and key are too long for an entry is a dead letter before it is tagged. Here it is
    tagged: its epoch can never be written.
    """
    ground.replace(keyed_rows, "values_too_long", lambda *_: [])


@planted("G5")
def entries_of_a_dropped_index_go_on(ground: Ground) -> None:
    """docs/adr/0018-secondary-indexes.md, Restores leave the same behind: nothing is written
    into an index that a restore dropped. Here epochs go on with the index of the last plan: its definition is
    there, so readers take the few entries for all.
    """
    last = list[SecondaryLayout]()

    def layouts(*table: Any) -> tuple[SecondaryLayout, ...]:
        last[:] = secondary_layouts(*table) or last
        return tuple(last)

    ground.replace(kept_indexes, "secondary_layouts", layouts)
    ground.replace(served_table, "check_still_servable", without_unfinished)


@planted("G6")
def dropped_index_is_awaited(ground: Ground) -> None:
    """The same: a definition without files is taken out, too, when nobody builds the index. Here it is taken
    for one that is about to be built, and the stream waits for ever.
    """
    real = unfinished_index._take_out_dead

    def take_out_dead(context: Any, timelines: Any, index: str) -> bool:
        return bool(context.storage.list(f".hoodie/metadata/{index}")) and real(context, timelines, index)

    ground.replace(unfinished_index, "_take_out_dead", take_out_dead)


@planted("G5")
def nulls_have_no_entry(ground: Ground) -> None:
    """A row whose value is null has an entry like any other. Here it has none: a query for null loses it."""
    ground.replace(secondary_task, "values_changed", known_values_changed)


def known_values_changed(files: Sequence[RowsChanged], column: str) -> ValueChanges:
    """`values_changed` without nulls."""

    def not_null(pairs: ValuePairs) -> ValuePairs:
        known = pairs.values.is_valid()
        return ValuePairs(pairs.keys.filter(known), pairs.values.filter(known))

    found = values_changed(files, column)
    return ValueChanges(not_null(found.puts), not_null(found.deletes))


@planted("G5")
def index_switched_on_as_it_was_scanned(ground: Ground) -> None:
    """A command that makes an index looks again, under the lock, at what was committed since it read the
    rows. Here it does not, and the index lacks an epoch.
    """
    ground.replace(index_command, "_is_as_of", lambda *_: True)


@planted("G5")
def index_defined_before_it_is_complete(ground: Ground) -> None:
    """An index is defined when its entries count: readers use what is defined and has files. Here a command
    defines it before its commit in the metadata table is complete, and readers take no entries for all.
    """
    real = index_creation.complete_build

    def complete_build(storage: Storage, *built: Any) -> None:
        definition = secondary_index_definition(NAME, "ts")
        write_index_definitions(storage, {**read_index_definitions(storage), NAME: definition})
        real(storage, *built)

    ground.replace(secondary_creation, "complete_build", complete_build)


@planted("G5")
def entry_in_the_group_beside(ground: Ground) -> None:
    """All entries of a value lie in the file group of its hash, and readers open no other one. Here each lies
    in the next group.
    """

    def beside(value_prefixes: pa.StringArray, groups: int) -> Any:
        return (group_of(value_prefixes, groups) + 1) % groups

    ground.replace(secondary_task, "group_of", beside)


@planted("G5")
def groups_as_they_are_configured(ground: Ground) -> None:
    """How many file groups an index has is read from its files. Here a configuration says it: entries go into
    groups in which readers, who count what is there, do not look for them.
    """

    def layouts(*table: Any) -> tuple[SecondaryLayout, ...]:
        return tuple(replace(each, groups=_CONFIGURED_GROUPS) for each in secondary_layouts(*table))

    ground.replace(kept_indexes, "secondary_layouts", layouts)
