"""Checks that the coordinator, the topics and the folder of an assigner's configuration belong to one table.

Two tables of one name are easily mixed up: somebody copies a configuration file and changes only one of
`table.path`, `kafka.bootstrap.servers` and `services.coordinator`. An assigner would then look keys up in one
table and publish their tags to the topics of the other. Two comparisons prevent that:

1. The ledger's identity must be the same in the folder (`table-id`), in the coordinator's claims on the
   topics, and in the coordinator's answer to `Join`.
2. A copied folder has the same identity. So its place must be the one that the coordinator claimed.
"""

from __future__ import annotations

from tidemark.config import TableConfigFile
from tidemark.epoch_protocol.state import FoldState
from tidemark.hudi_format.storage.base import Storage
from tidemark.ledger_client.table_identity import is_copy, known_ledger_id
from tidemark.record_formats.errors import SetupError


def check_same_table(config: TableConfigFile, storage: Storage, joined: str, state: FoldState) -> None:
    """Raises SetupError when folder, coordinator and topics belong to different tables.

    ``joined``: the ledger's identity as the joined coordinator told it ("": its version tells none).
    ``state``: what the topics' entries fold to. The error names both tables, and which key to correct.
    """
    name, coordinator, path = config.table.name, config.services.coordinator, storage.base_uri
    here = known_ledger_id(storage)
    if joined and here != joined:
        raise SetupError(
            f"the coordinator at {coordinator} serves the ledger {joined} of a table {name}, but the table "
            f"at {path} has {f'the ledger {here}' if here else 'no ledger'}: correct table.path or "
            "services.coordinator; each table needs a table.name of its own"
        )
    if joined and state.ledger and state.ledger != joined:
        raise SetupError(
            f"the coordinator at {coordinator} serves the ledger {joined} of the table {name}, but the "
            f"topics {name}.* on {config.kafka.bootstrap_servers} hold the ledger {state.ledger}: correct "
            "kafka.bootstrap.servers or services.coordinator"
        )
    if state.location is not None and is_copy(storage, state.location):
        raise SetupError(
            f"the coordinator at {coordinator} serves the table at {state.location.path}, but table.path is "
            f"{path}, a copy of it: use one configuration for all services of a table"
        )


def check_same_ledger(table: str, ledger: str, folded: str) -> None:
    """Checks before each claim that the topics still hold the ledger of the joined coordinator.

    ``ledger``: as the coordinator told it; ``folded``: as the topics' newest claim tells it ("": unknown).
    Raises SetupError that names both, and which keys to correct.
    """
    if ledger and folded and ledger != folded:
        raise SetupError(
            f"the topics {table}.* hold the ledger {folded} now, but this process joined the coordinator of "
            f"the ledger {ledger}: it claims nothing. Start it again, with the kafka.bootstrap.servers and "
            "services.coordinator of one table"
        )
