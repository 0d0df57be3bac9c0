"""Whether a coordinator that answers serves the table that a configuration means, or one of the same name, or
the one that it was copied from.
"""

from __future__ import annotations

import os

from tidemark.commit_coordinator.opening.ledger_identity import moved_or_copied_text
from tidemark.commit_coordinator.opening.served import Served, shown_owner
from tidemark.config import TableConfigFile
from tidemark.console.errors import CliError
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.storage.locate import open_storage
from tidemark.ledger_client.table_place import is_copy


def check_served(config: TableConfigFile, served: Served) -> None:
    """``served`` is the coordinator's answer. Raises CliError that names both tables.

    The owner's name in the table's folder tells namesakes apart: paths differ between containers, and
    symbolic links. Where there is none to compare (it starts, or the folder is not mounted here) the paths
    have to be the same. A copy of the folder has that name, too; what tells it is the place, where both
    folders are seen from here (`is_copy`). A copy that is alone on its machine cannot be told, and passes: so
    does the table itself under another mount, for whoever asks from another machine or container.
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
