"""Which replacecommits are known to have left the index entries of all rows alone, kept with the table.

What tells that an insert overwrite or a delete partition took entries of living rows away is gone some
commits later (see `replaced_entries`). So what was found right is kept, by the names of the completed files:
another engine's clock may be behind, and a time would stand for commits that nobody has looked at. What was
found wrong needs no record: it is judged again until the index is right.

It was right as the table was. One that took entries may be right since another one hides the rows: where a
restore takes the other back they are there again. So what is kept holds as long as *all* of it is there.

Two write it: a coordinator behind the fence of its term, and `tidemark verify`, which compared all rows with
the index. Where one overwrites what the other has just written something is forgotten, nothing is made up.
"""

from __future__ import annotations

import logging
from collections.abc import Set
from typing import Final

import msgspec

from tidemark.hudi_format.errors import CorruptFileError, FileMissingError
from tidemark.hudi_format.publication.port import Term
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.storage.documents import read_document

CHECKED_INDEX: Final = ".hoodie/.aux/tidemark/index-checked.json"
_log = logging.getLogger("tidemark.table")


class CheckedIndex(msgspec.Struct, frozen=True):
    """The stored document. ``replacecommits``: `<requested>_<completion>.replacecommit` each."""

    replacecommits: list[str]


def checked_replacecommits(storage: Storage, there: Set[str]) -> frozenset[str]:
    """Those that are kept. ``there``: the names of all that both timelines have. Empty where one of them was
    taken back since, and where nothing is known. A damaged document says nothing, and is written anew.
    """
    stored = _stored(storage) or frozenset()
    return stored if stored <= there else frozenset()


def keep_checked(storage: Storage, names: Set[str], there: Set[str], by: Term | None = None) -> None:
    """Adds these to what is kept and holds. ``there``: as above. ``by``: the term of a coordinator.

    Raises OSError, and FencedOutError where the term is over.
    """
    stored = _stored(storage)
    kept = names | (stored if stored is not None and stored <= there else frozenset())
    if kept == stored:
        return
    content = msgspec.json.encode(CheckedIndex(sorted(kept)))
    if by is None:
        storage.replace(CHECKED_INDEX, content)
    else:
        by.replace(CHECKED_INDEX, content)


def _stored(storage: Storage) -> frozenset[str] | None:
    try:
        return frozenset(read_document(storage, CHECKED_INDEX, CheckedIndex).replacecommits)
    except FileMissingError:
        return None
    except CorruptFileError as error:
        _log.warning("it is looked anew whether the record index has all rows: %s", error)
        return None
