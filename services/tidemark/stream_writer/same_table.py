"""Checks that the writer's folder is the table of the coordinator that hands its epochs out.

Two tables of one name are easily confused: a configuration is copied, and then has another `table.path` or
another `services.coordinator`. The files would be in one table, and the commit that names them in the other.
The ledger's identity tells the tables apart. It is compared before each epoch, because another table may take
the folder's place while the writer runs.
"""

from __future__ import annotations

from tidemark.config import TableConfigFile
from tidemark.hudi_format.storage.base import Storage
from tidemark.ledger_client.table_identity import known_ledger_id
from tidemark.stream_writer.errors import OtherTableError


def check_same_ledger(config: TableConfigFile, storage: Storage, ledger: str) -> None:
    """``ledger`` is the identity of the coordinator's ledger, "" from a version that does not send it.

    Raises OtherTableError, whose text names both tables and what to correct.
    """
    here = known_ledger_id(storage) if ledger else ""
    if here == ledger:
        return
    raise OtherTableError(
        f"the coordinator at {config.services.coordinator} serves the ledger {ledger} of a table "
        f"{config.table.name}, and the table at {storage.base_uri} has "
        f"{f'the ledger {here}' if here else 'no ledger'}: correct table.path or services.coordinator; "
        "nothing was written, and the epoch waits for the right writer"
    )
