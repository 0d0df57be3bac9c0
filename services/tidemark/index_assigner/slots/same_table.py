"""Whether coordinator, topics and folder that an assigner was given belong to one table.

Two tables of one name are easily mixed up: a configuration that was copied and has another `table.path`,
another `kafka.bootstrap.servers` or another `services.coordinator`. An assigner would then look keys up in
one table and tag them into the topics of the other. The identity of the ledger tells them apart (`table-id`
in the folder, in the coordinator's claims, in its answer to who joins); of a folder that was copied, identity
and all, the place that the coordinator claimed.
"""

from __future__ import annotations

from tidemark.config import TableConfigFile
from tidemark.epoch_protocol.state import FoldState
from tidemark.hudi_format.storage.base import Storage
from tidemark.ledger_client.table_id import known_ledger_id
from tidemark.ledger_client.table_place import is_copy
from tidemark.record_formats.errors import SetupError


def check_same_table(config: TableConfigFile, storage: Storage, joined: str, state: FoldState) -> None:
    """``joined``: the ledger of the coordinator that was joined ("": of a version that does not say).
    ``state``: folded from the topics. Raises SetupError that names both tables, and what to correct.
    """
    name, coordinator, path = config.table.name, config.services.coordinator, storage.base_uri
    here = known_ledger_id(storage)
    if joined and here != joined:
        raise SetupError(
            f"the coordinator at {coordinator} serves the ledger {joined} of a table {name}, and the table "
            f"at {path} has {f'the ledger {here}' if here else 'no ledger'}: correct table.path or "
            "services.coordinator; each table needs a table.name of its own"
        )
    if joined and state.ledger and state.ledger != joined:
        raise SetupError(
            f"the coordinator at {coordinator} serves the ledger {joined} of the table {name}, and the "
            f"topics {name}.* on {config.kafka.bootstrap_servers} are the ledger {state.ledger}: correct "
            "kafka.bootstrap.servers or services.coordinator"
        )
    if state.location is not None and is_copy(storage, state.location):
        raise SetupError(
            f"the coordinator at {coordinator} serves the table at {state.location.path}, and table.path is "
            f"{path}, a copy of it: use one configuration for all services of a table"
        )


def check_same_ledger(table: str, ledger: str, folded: str) -> None:
    """Before each claim. ``ledger``: as the coordinator told it; ``folded``: that of the topics now ("": not
    known). Raises SetupError that names both, and what to correct.
    """
    if ledger and folded and ledger != folded:
        raise SetupError(
            f"the topics {table}.* are the ledger {folded} now, and this process joined the coordinator of "
            f"the ledger {ledger}: nothing is claimed. Start it again, with the kafka.bootstrap.servers and "
            "services.coordinator of one table"
        )
