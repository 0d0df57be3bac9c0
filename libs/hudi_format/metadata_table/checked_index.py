"""Up to when the record index is known to have an entry of each row, kept with the table.

What tells that an insert overwrite or a delete partition took entries of living rows away is gone some
commits later (see `replaced_entries`). So what was found right is kept: the completion time of the newest
replacecommit that took no such entry, nor did one before. What was found wrong needs no record: the time does
not move past it, and it is judged again until the index is right.

Two write it: a coordinator behind the fence of its term, and `tidemark verify`, which compared all rows with
the index. Where one overwrites what the other has just written a time is lost, never won.
"""

from __future__ import annotations

import logging
from typing import Final

import msgspec

from hudi_format.errors import CorruptFileError, FileMissingError
from hudi_format.storage.base import Storage
from hudi_format.storage.documents import read_document

CHECKED_INDEX: Final = ".hoodie/.aux/tidemark/index-checked.json"
_log = logging.getLogger("tidemark.table")


class CheckedIndex(msgspec.Struct, frozen=True):
    """The stored document. ``until``: a completion time on the data table's timeline."""

    until: str = ""


def checked_until(storage: Storage) -> str:
    """ "" where nothing is known. A damaged document says nothing, and is written anew."""
    try:
        return read_document(storage, CHECKED_INDEX, CheckedIndex).until
    except FileMissingError:
        return ""
    except CorruptFileError as error:
        _log.warning("it is looked anew whether the record index has all rows: %s", error)
        return ""


def keep_checked(storage: Storage, until: str, fence: str | None = None) -> None:
    """Keeps a later time than the one that is stored. ``fence``: the term's folder of a coordinator.

    Raises OSError, and StagingGoneError where the term is over.
    """
    if until <= checked_until(storage):
        return
    content = msgspec.json.encode(CheckedIndex(until))
    if fence is None:
        storage.replace(CHECKED_INDEX, content)
    else:
        storage.publish(fence, CHECKED_INDEX, content, overwrite=True)
