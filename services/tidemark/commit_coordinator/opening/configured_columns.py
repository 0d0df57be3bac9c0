"""Records in the table's folder which columns `table.schema` had when the table was last served.

By that record a start tells a column that left `table.schema` from one that another engine added. Without it
a renamed column would silently become a new one, and the old one would have no value in any new row.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from tidemark.commit_coordinator.errors import CoordinatorError
from tidemark.config import TableConfigFile
from tidemark.errors import ErrorKind
from tidemark.hudi_format.errors import CorruptFileError, FileMissingError
from tidemark.hudi_format.publication.port import Term
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.storage.base import Storage, join_path
from tidemark.hudi_format.storage.documents import ROOT, read_document

CONFIGURED_COLUMNS: Final = join_path(ROOT, "configured-columns.json")


class MissingColumnsError(CoordinatorError):
    """`table.schema` lacks columns that it had; the text names them and both ways to continue."""

    kind = ErrorKind.INVALID


class _Record(msgspec.Struct, frozen=True):
    columns: list[str]


def check_columns_kept(file: TableConfigFile, storage: Storage, configured: TableSchema) -> None:
    """Raises MissingColumnsError for columns that `table.schema` had and has no longer, unless
    `table.retired_columns` names them. Without a record (the first start) all columns are taken as they are.
    """
    recorded = _recorded(storage)
    here, retired = configured.arrow.names, file.table.retired_columns
    gone = [name for name in recorded if name not in here and name not in retired]
    if gone:
        added = [name for name in here if name not in recorded]
        raise MissingColumnsError(_text(file.table.schema, gone, added))


def record_columns(term: Term, configured: Sequence[str]) -> None:
    """Records the ``configured`` columns for the next start. Raises FencedOutError when the term is over."""
    if _recorded(term.storage) != list(configured):
        content = msgspec.json.encode(_Record(list(configured)))
        term.replace(CONFIGURED_COLUMNS, content)


def _recorded(storage: Storage) -> list[str]:
    try:
        return read_document(storage, CONFIGURED_COLUMNS, _Record).columns
    except FileMissingError:
        return []
    except CorruptFileError as error:
        raise MissingColumnsError(
            f"{error}: compare table.schema with "
            "`tidemark table describe`, then delete that file; the next start writes it anew"
        ) from error


def _text(schema: Path, gone: Sequence[str], added: Sequence[str]) -> str:
    names = ", ".join(gone)
    renamed = (
        f" If {', '.join(added)} is a new name for it: a column cannot be renamed, it would begin empty "
        "beside the old one."
        if added
        else ""
    )
    return (
        f"{schema} lacks {names}, which table.schema had when the table was last served.{renamed} Either put "
        "it back; or retire it: with `table: {retired_columns: ["
        f"{names}]}}` rows that are written from now on have no value there, and others keep theirs"
    )
