"""Finds log files that lost their end, by the size with which they were committed.

A log file is a sequence of whole blocks. A file that was cut off within a block is found to be damaged. A
file that was cut off between two blocks reads like one that never had more, so rows, deletes or index entries
would be lost in silence. The worst case is a file without any byte: a file system that lost power may keep
names and lose content. So readers compare sizes:

* A reader that knows the committed size compares it. The metadata table lists the sizes of the data table's
  files.
* A reader that knows only the name looks up the commit when the file is empty. A file that no commit on the
  active timeline names is taken as Hudi takes it: an empty file holds nothing.

No reader misses a log file of the metadata table that vanished together with its name: only `tidemark verify`
finds that (`committed-file-gone`).
"""

from __future__ import annotations

from typing import Final

from tidemark.hudi_format.commit.instants import instant_path
from tidemark.hudi_format.errors import CorruptFileError
from tidemark.hudi_format.file_group.names import parse_data_file
from tidemark.hudi_format.storage.base import Storage, name_of, parent_of
from tidemark.hudi_format.timeline import DATA_ROOT, METADATA_TABLE_ROOT, load_timeline
from tidemark.hudi_format.timeline.avro_records import decode_commit_metadata

_METADATA_TABLE: Final = f"{parent_of(METADATA_TABLE_ROOT)}/"


def check_size(path: str, size: int, committed: int) -> None:
    """Raises CorruptFileError when the file is shorter than its committed size; both sizes are in bytes."""
    if size < committed:
        raise CorruptFileError(
            f"{path} has {size} bytes, and was committed with {committed}: its end is lost. Put the file "
            "back from a copy of the table, or restore the table with Hudi to a savepoint before its commit"
        )


def check_empty(storage: Storage, path: str) -> None:
    """Checks an empty log file against its commit.

    Raises CorruptFileError when it was committed with content or the commit cannot be read, and
    FileMissingError when the commit was archived meanwhile: reload the timeline.
    """
    relative = path.removeprefix(_METADATA_TABLE)
    root = DATA_ROOT if relative == path else METADATA_TABLE_ROOT
    name = parse_data_file(name_of(path))
    instant = load_timeline(storage, root).find(name.instant) if name is not None else None
    if instant is None or not instant.is_completed or not instant.action.is_write:
        return
    commit = instant_path(instant, root)
    # The record of a replacecommit begins like that of a commit.
    stats = decode_commit_metadata(storage.read(commit), commit).stats()
    check_size(path, 0, max((stat.file_size_in_bytes for stat in stats if stat.path == relative), default=0))
