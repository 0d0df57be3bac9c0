"""What a clean looks at: the files in the folders of a table's partitions of which some may be superseded."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from tidemark.commit_coordinator.table_services.listings import group_ids, names_of
from tidemark.hudi_format.storage.base import Storage, join_path
from tidemark.hudi_format.table_services.clean_planning import superseded_groups
from tidemark.hudi_format.table_services.operations import CleanPlan


@dataclass(frozen=True, slots=True)
class Looked:
    """``files``: partition that was looked at -> names of the files of groups that may have superseded
    slices, or are replaced.
    ``is_whole_table``: no other group has any. ``first_partition``: where this look began, "" for the first
    one of all. ``next_partition``: where the next look begins, "" when this one came to the end.
    """

    files: Mapping[str, Collection[str]]
    is_whole_table: bool
    first_partition: str = ""
    next_partition: str = ""


def looked_again(
    storage: Storage, root: str, plan: CleanPlan, replaced: Mapping[str, Collection[str]]
) -> Looked:
    """The files of the groups that the plan takes files of, and of those that are replaced by now."""
    files: dict[str, list[str]] = {}
    for partition, planned in sorted(plan.files.items()):
        groups = group_ids(planned) | set(replaced.get(partition, ()))
        files[partition] = names_of(storage.names(join_path(root, partition)), groups)
    return Looked(files, is_whole_table=False)


def looked_at(
    storage: Storage, root: str, partitions: Sequence[str], replaced: Mapping[str, Collection[str]]
) -> Looked:
    """The files of the groups in these partitions that may have superseded slices, or are replaced."""
    files: dict[str, list[str]] = {}
    for partition in partitions:
        names = storage.names(join_path(root, partition))
        files[partition] = names_of(names, superseded_groups(names) | set(replaced.get(partition, ())))
    return Looked(files, is_whole_table=False)
