"""A table with an empty secondary index, made in its order: the partition, its definition, its name in the
properties; and what its entries say, read without the product.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tests.hudi_rules.slices import parse_data_file
from tests.hudi_rules.timeline import parse_timeline
from tests.hudi_rules.value_entries import group_of, value_part_of
from tests.simulation.world.checkers import decode
from tests.simulation.world.checkers.table import METADATA_TIMELINE
from tests.simulation.world.foreign.instants import build_instant
from tidemark.hudi_format import table_keys as keys
from tidemark.hudi_format.commit.instants import complete, create_inflight, create_requested
from tidemark.hudi_format.file_group.names import LogFileName
from tidemark.hudi_format.index_definitions import read_index_definitions, write_index_definitions
from tidemark.hudi_format.metadata_table.delta_commit import empty_log
from tidemark.hudi_format.publication.unfenced import Unfenced
from tidemark.hudi_format.storage.base import Storage, join_path
from tidemark.hudi_format.table_config import read_properties, update_properties
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, Action, load_timeline
from tidemark.hudi_format.timeline.avro_records import CommitMetadata, encode_commit_metadata

NAME = "secondary_index_by_value"
FOLDER = f".hoodie/metadata/{NAME}"


def switch_on(storage: Storage, groups: int, column: str = "v", at: str | None = None) -> None:
    """Makes an empty index and lists it; another one in place of one that is there. `at`: when its partition
    completes, with the newest commit by default.
    """
    storage.delete_tree(FOLDER)
    instant = build_instant(
        {found.requested for found in load_timeline(storage, METADATA_TABLE_ROOT).instants}
    )
    for group in range(groups):
        name = str(LogFileName(f"secondary-index-by-value-{group:04d}-0", instant, 1, "0-0-0"))
        storage.create(join_path(FOLDER, name), empty_log(instant))
    storage.create(
        join_path(FOLDER, ".hoodie_partition_metadata"),
        f"commitTime={instant}\npartitionDepth=1\n".encode(),
    )
    by = Unfenced(storage)
    requested = create_requested(by, instant, Action.DELTA_COMMIT, root=METADATA_TABLE_ROOT)
    inflight = create_inflight(by, requested, root=METADATA_TABLE_ROOT)
    newest = at or max(load_timeline(storage).times(), default="20200101000000000")
    done = encode_commit_metadata(CommitMetadata())
    complete(by, inflight, newest, done, root=METADATA_TABLE_ROOT)
    define(storage, column)
    listed = {*read_properties(storage)[keys.METADATA_PARTITIONS].split(","), NAME}
    update_properties(storage, {keys.METADATA_PARTITIONS: ",".join(sorted(listed))})


def define(storage: Storage, column: str, function: str = "identity") -> None:
    """Sets the column of the definition. `function`: "" where a write made the index on its way."""
    definition = {
        "indexName": NAME,
        "indexType": "secondary_index",
        "indexFunction": function,
        "sourceFields": [column],
        "indexOptions": {},
        "version": "V2",
    }
    write_index_definitions(storage, {**read_index_definitions(storage), NAME: definition})


def logs(storage: Storage, instant: str) -> list[str]:
    """The names of the index's log files of this instant."""
    return sorted(name for name in storage.names(FOLDER) if f"_{instant}.log." in name)


def changes(storage: Storage, instant: str) -> set[tuple[str, str]]:
    """(put or delete, composite key) of all entries that this instant wrote."""
    return {
        each for name in logs(storage, instant) for each in _entries(storage.read(join_path(FOLDER, name)))
    }


def live(storage: Storage) -> set[str]:
    """The composite keys that are there after all completed deltacommits, in the order of their instants; an
    AssertionError for one that lies in another file group than the one in which readers look for its value.
    """
    timeline = parse_timeline(storage.names(METADATA_TIMELINE))
    done = {each.requested for each in timeline.completed()}
    files = [file for file in map(parse_data_file, storage.names(FOLDER)) if file is not None]
    groups = sorted({file.file_id for file in files})
    found: set[str] = set()
    for file in sorted(files, key=lambda file: (file.instant, file.file_id)):
        if file.instant not in done:
            continue
        number = groups.index(file.file_id)
        for op, key in _entries(storage.read(join_path(FOLDER, file.name))):
            due = group_of(value_part_of(key), len(groups))
            assert number == due, f"{op} {key!r} is in the file group {number}, not in {due}"
            (found.add if op == "put" else found.discard)(key)
    return found


def entries_of_group(
    storage: Storage, folder: str, group: str, names: list[str], done: Mapping[str, str | None]
) -> set[str]:
    """The living entries of a file group: of its newest base file, then of the log files of later instants.
    ``names``: all of the folder. ``done``: completed instants, and when they completed.
    """
    found: set[str] = set()
    bases = {
        name.rpartition("_")[2].partition(".")[0]: name for name in names if name.startswith(f"{group}_")
    }
    newest = max((instant for instant in bases if instant in done), default="")
    if newest:
        found |= {key for key, _ in decode.hfile_entries(storage.read(f"{folder}/{bases[newest]}"))}
    logs = [
        (name.partition("_")[2].partition(".")[0], name) for name in names if name.startswith(f".{group}_")
    ]
    for instant, name in sorted(logs, key=lambda log: str(done.get(log[0]))):
        if instant not in done or instant < newest:
            continue
        for block in decode.log_blocks(storage.read(f"{folder}/{name}")):
            if block.kind == decode.HFILE:
                found |= {key for key, _ in decode.hfile_entries(block.content)}
            elif block.kind == decode.DELETE:
                found -= {each.key for each in decode.deletes(block.content)}
    return found


def _entries(data: bytes) -> Iterator[tuple[str, str]]:
    for block in decode.log_blocks(data):
        if block.kind == decode.HFILE:
            yield from (("put", key) for key, _ in decode.hfile_entries(block.content))
        elif block.kind == decode.DELETE:
            yield from (("delete", each.key) for each in decode.deletes(block.content))
