"""A document beside the table with the replacecommits that passed a check: they deleted no index entry of a
row that is still there.

The check (`replaced_entries`) reads files that Hudi deletes some commits later. So what passed it is stored:

* The document has the names of completed timeline files, not a time: another engine's clock may be behind,
  so a time would also cover commits that nobody has checked.
* A replacecommit that failed the check is not stored: it is checked again until the index is right.
* The document counts only as long as the timelines have *all* of its names. A replacecommit may have passed
  because another one replaced the rows whose entries it deleted; when a restore takes that other one back,
  the rows are there again.

Two programs write it: a coordinator, behind the fence of its term, and `tidemark verify`, which compared all
rows with the index. If one overwrites what the other has just written, a check is repeated; no name appears
that nobody checked.
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
    """The stored document. ``replacecommits``: names of the form `<requested>_<completion>.replacecommit`."""

    replacecommits: list[str]


def checked_replacecommits(storage: Storage, there: Set[str]) -> frozenset[str]:
    """The stored names; none where ``there``, the names of all replacecommits on the active and the archived
    timeline, lacks one of them. A damaged document counts as an empty one, and the next `keep_checked`
    replaces it.
    """
    stored = _stored(storage) or frozenset()
    return stored if stored <= there else frozenset()


def keep_checked(storage: Storage, names: Set[str], there: Set[str], by: Term | None = None) -> None:
    """Adds the names to the document, after emptying it where `checked_replacecommits` would return none.

    ``there``: as in `checked_replacecommits`. ``by``: the term of a coordinator. Raises OSError, and
    FencedOutError where the term is over.
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
        _log.warning("checking again whether the record index has all rows: %s", error)
        return None
