"""Queries dead letters for the command line: at the table's coordinator, or in Kafka while none answers.

Both run the same code (`commit_coordinator.dead_letters.queries`). The coordinator offers it to clients that
cannot reach Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

import grpc

from tidemark.cli.answering import answering_coordinator
from tidemark.config import TableConfigFile, load_config
from tidemark.console.admin_client import AdminClient
from tidemark.console.errors import CliError
from tidemark.ledger_client.dead_letters import LetterFilter, LetterPage, Replayed, WholeLetter
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.rpc.errors import RpcError


class Letters(Protocol):
    """Queries on a table's dead letters. All methods raise StreamRuntimeError."""

    def newest(self, wanted: LetterFilter, limit: int) -> LetterPage:
        """The newest `limit` dead letters that match, and the counts of all that match."""
        ...

    def show(self, letter_id: int) -> WholeLetter | None:
        """One dead letter with its key, value and headers; None when there is none with this id."""
        ...

    def replay(self, wanted: LetterFilter, *, dry_run: bool, again: bool, replays_max: int) -> Replayed:
        """Produces the records of all dead letters that match again. `dry_run`: only says which. `again`:
        also those that were replayed before. `replays_max`: records that were replayed so often are left out.
        """
        ...


class CoordinatorLetters:
    """`Letters` by the coordinator's admin service."""

    def __init__(self, client: AdminClient) -> None:
        self._client = client

    def newest(self, wanted: LetterFilter, limit: int) -> LetterPage:
        return self._client.dead_letters(wanted, limit)

    def show(self, letter_id: int) -> WholeLetter | None:
        try:
            return self._client.dead_letter(letter_id)
        except RpcError as error:
            if error.status is grpc.StatusCode.NOT_FOUND:
                return None
            raise

    def replay(self, wanted: LetterFilter, *, dry_run: bool, again: bool, replays_max: int) -> Replayed:
        whole, token = Replayed(), ""
        if wanted.since_ms is not None:
            # An older coordinator would replay all letters: `newest` tells it apart.
            self.newest(wanted, 1)
        while True:
            page = self._client.replay(wanted, dry_run, again, replays_max, token)
            whole.done += page.done
            whole.chosen += page.chosen
            whole.skipped += page.skipped
            if not (token := page.next_token):
                return whole


@contextmanager
def reach_letters(
    config_file: str, clock: Clock, say: Callable[[str], None]
) -> Iterator[tuple[TableConfigFile, Letters]]:
    """The loaded configuration and the queries on its table's dead letters.

    With a copy of the table's folder or configuration the command would read the original's dead letters and
    replay them into the original's topics. So the table is checked: by `connect` at a coordinator, by
    `check_ledger` on the topics where no coordinator answers.

    Raises CliError when the embedded Kafka was never started, so that there are none yet, or when the
    coordinator or the topics are another table's.
    """
    loaded = load_config(config_file)
    client = answering_coordinator(loaded, config_file)
    if client is not None:
        with client:
            yield loaded, CoordinatorLetters(client)
        return
    # Twice as much to load as all that a coordinator's client needs.
    from tidemark.cli.reachable_kafka import has_kafka, reachable_kafka
    from tidemark.commit_coordinator.offline.dead_letters import KafkaLetters
    from tidemark.commit_coordinator.offline.rehearsal import check_ledger
    from tidemark.hudi_format.storage.locate import open_storage
    from tidemark.stream_runtime.kafka.confluent.client import ConfluentKafkaClient

    if not has_kafka(loaded):
        raise CliError(
            f"there are no dead letters yet: {loaded.state.path} (state.path) holds no embedded Kafka; "
            f"`tidemark run -c {config_file}` makes it"
        )
    with reachable_kafka(loaded, clock, say, "tidemark dead-letter") as config:
        kafka = ConfluentKafkaClient.from_config(config, clock=clock)
        check_ledger(config, open_storage(config.table.path), kafka, clock)
        yield config, KafkaLetters(kafka, config, clock)
