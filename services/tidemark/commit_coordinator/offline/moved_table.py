"""`tidemark table adopt --moved`: continues the ledger of a table that was moved, at its new place.

The command only claims the table from the new place; from then on coordinators start there. A coordinator
that still runs at the former place is fenced by that claim. At its next start it finds the ledger elsewhere,
and stops.
"""

from __future__ import annotations

import os

from tidemark.commit_coordinator.errors import DivergedError
from tidemark.commit_coordinator.offline.opened_ledger import opened_ledger
from tidemark.commit_coordinator.opening.ledger_identity import (
    MovedOrCopiedError,
    is_same_place,
    location_of,
)
from tidemark.commit_coordinator.opening.takeover import take_over
from tidemark.config import TableConfigFile
from tidemark.epoch_protocol.entries import TableLocation
from tidemark.hudi_format.publication.locate import open_publication
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.table_config import PROPERTIES_PATH
from tidemark.ledger_client.table_identity import known_ledger_id
from tidemark.ledger_client.topics import TopicNames
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.ids import IdSource
from tidemark.stream_runtime.kafka.ports import KafkaClient, MissingTopicError


def take_over_moved(
    config: TableConfigFile, kafka: KafkaClient, storage: Storage, clock: Clock, ids: IdSource
) -> TableLocation:
    """Claims the ledger for the table's present place, and returns that place. Repeatable.

    Raises DivergedError when the topics belong to another table, MovedOrCopiedError when this machine still
    sees a table at the former place, MissingTopicError.
    """
    names, admin = TopicNames(config.table.name), kafka.admin()
    try:
        if admin.partitions(names.epochs) is None:
            raise MissingTopicError(
                f"there is no topic {names.epochs} on {config.kafka.bootstrap_servers}: is it the right "
                "Kafka?"
            )
    finally:
        admin.close()
    with opened_ledger(config, kafka, storage, clock) as (reader, log):
        reader.catch_up()
        state, ledger, here = reader.fold.state, known_ledger_id(storage), location_of(storage)
        if state.ledger and state.ledger != ledger:
            raise DivergedError(
                f"the topics {config.table.name}.* are ledger {state.ledger}, the table at {here.path} has "
                f"{f'ledger {ledger}' if ledger else 'none'}: it is not the table that was moved"
            )
        there = state.location
        if there is not None and not is_same_place(there, here) and _has_table(there.path):
            raise MovedOrCopiedError(
                f"there is still a table at {there.path}: this one is a copy. Give it a table.name and a "
                "state.path of its own, then `tidemark table adopt --copied`; or delete the former one first"
            )
        take_over(
            open_publication(storage, clock, ids), log, lambda: reader.fold, f"moved-{ids.uuid()}", ledger
        )
        return here


def _has_table(path: str) -> bool:
    return os.path.exists(os.path.join(path, PROPERTIES_PATH))
