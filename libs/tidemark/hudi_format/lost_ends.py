"""Log files that lost their end: what their commit says of their size tells.

A log file is whole blocks one after the other. Cut off within a block it is found damaged; cut off between
two it reads like one that never had more, and rows, deletes or index entries are gone in silence. Above all
so does a file without a byte: a file system that lost power may keep names and lose content.

So whoever knows the committed size compares it: the metadata table lists those of the data table's files.
Who reads by name alone looks the commit up where the file is empty. A file that no commit on the active
timeline names is taken as Hudi takes it: without a byte it holds nothing. A log file of the metadata table
that is lost whole, its name too, is missed by no reader: `tidemark verify` alone finds it
(`committed-file-gone`).
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
    """Raises CorruptFileError where the file is shorter than what was committed of it; both in bytes."""
    if size < committed:
        raise CorruptFileError(
            f"{path} has {size} bytes, and was committed with {committed}: its end is lost. Put the file "
            "back from a copy of the table, or restore the table with Hudi to a savepoint before its commit"
        )


def check_empty(storage: Storage, path: str) -> None:
    """Asks the commit of a log file that is empty.

    Raises CorruptFileError where it was committed with content, or the commit cannot be read, and
    FileMissingError where the commit was archived meanwhile: reload the timeline.
    """
    relative = path.removeprefix(_METADATA_TABLE)
    root = DATA_ROOT if relative == path else METADATA_TABLE_ROOT
    name = parse_data_file(name_of(path))
    instant = load_timeline(storage, root).find(name.instant) if name is not None else None
    if instant is None or not instant.is_completed or not instant.action.is_write:
        return
    commit = instant_path(instant, root)
    # A replacecommit's record begins like a commit's.
    stats = decode_commit_metadata(storage.read(commit), commit).stats()
    check_size(path, 0, max((each.file_size_in_bytes for each in stats if each.path == relative), default=0))
