"""Whether a coordinator that answers serves the table that a configuration means, or one of the same name."""

from __future__ import annotations

import os

from commit_coordinator.staging import shown_owner
from hudi_format.storage.locate import open_storage
from stream_runtime.config import TableConfigFile
from tidemark_cli.errors import CliError


def check_served(config: TableConfigFile, path: str, owner: str) -> None:
    """``path`` and ``owner`` are the coordinator's answer; ``owner`` is empty while it takes over.

    The owner's name in the table's folder decides: paths differ between containers, and symbolic links. Where
    there is none to compare (it starts, or the folder is not mounted here) the paths have to be the same. A
    copy of a served table passes until it has a coordinator of its own. Raises CliError.
    """
    storage = open_storage(config.table.path)
    try:
        shown = shown_owner(storage)
    except OSError:
        shown = None
    if owner and shown:
        is_it = shown == owner
    else:
        is_it = os.path.realpath(storage.base_uri) == os.path.realpath(path)
    if not is_it:
        raise CliError(
            f"the coordinator at {config.services.coordinator} serves another table named "
            f"{config.table.name!r}: its path is {path}, table.path in {config.file} is {storage.base_uri}. "
            "Give each table its own services.coordinator"
        )
