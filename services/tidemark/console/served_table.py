"""Checks that the coordinator that answers serves the configuration's table, and not another table of the
same name or the table from which this one was copied.
"""

from __future__ import annotations

import os

from tidemark.config import TableConfigFile
from tidemark.console.errors import CliError
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.storage.locate import open_storage
from tidemark.ledger_client.table_identity import Served, is_copy, moved_or_copied_text, shown_owner


def check_served(config: TableConfigFile, served: Served) -> None:
    """``served`` is the coordinator's answer to `Serves`. Raises CliError that names both tables.

    1. The owner's name is compared with the one in the table's folder. Paths would not do: one folder has
       several, by containers and symbolic links.
    2. If one of the two names is missing (the coordinator is starting, or the folder is not mounted here) the
       paths have to be the same.
    3. A copy of the folder has the same owner's name. If both folders are visible from here, their places
       tell the copy (`is_copy`). If only one is, a copy cannot be told from the table itself under another
       mount, as another machine or container sees it; both pass.
    """
    storage = open_storage(config.table.path)
    at, path = config.services.coordinator, storage.base_uri
    if not _is_it(storage, served):
        raise CliError(
            f"the coordinator at {at} serves another table named {config.table.name!r}: its path is "
            f"{served.path}, table.path in {config.file} is {path}. "
            "Give each table its own services.coordinator"
        )
    if served.location is not None and is_copy(storage, served.location):
        raise CliError(
            f"the coordinator at {at} (services.coordinator in {config.file}) serves another folder: "
            + moved_or_copied_text(config.table.name, served.location.path, os.path.realpath(path))
        )


def _is_it(storage: Storage, served: Served) -> bool:
    try:
        shown = shown_owner(storage)
    except OSError:
        shown = None
    if served.owner and shown:
        return shown == served.owner
    return os.path.realpath(storage.base_uri) == os.path.realpath(served.path)
