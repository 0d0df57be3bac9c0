"""Whether the folder that a writer was given is the table whose epoch the coordinator hands out.

Two tables of one name are easily mixed up: a configuration that was copied and has another `table.path` or
another `services.coordinator`. The files would then lie in one table, and the commit that names them in the
other. The identity of the ledger tells them apart, and is compared before each epoch: a folder may be given
another table while the writer runs.
"""

from __future__ import annotations

from tidemark.config import TableConfigFile
from tidemark.hudi_format.storage.base import Storage
from tidemark.ledger_client.table_id import known_ledger_id
from tidemark.stream_writer.errors import OtherTableError


def check_same_ledger(config: TableConfigFile, storage: Storage, ledger: str) -> None:
    """``ledger``: of the coordinator whose epoch it is ("": of a version that does not say). Raises
    OtherTableError that names both, and what to correct.
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
