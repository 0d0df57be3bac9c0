"""Where the command line gets dead letters: from the table's coordinator, or from Kafka while none answers.

Both are the same code (`commit_coordinator.dead_letters.queries`). The coordinator runs it beside its own
work, for clients that cannot reach Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol

import grpc

from tidemark.cli.reachable_kafka import has_kafka, reachable_kafka
from tidemark.commit_coordinator.offline.dead_letters import KafkaLetters
from tidemark.commit_coordinator.offline.rehearsal import check_ledger
from tidemark.config import TableConfigFile, load_config
from tidemark.config.run_file import read_run_file
from tidemark.console.admin_client import AdminClient, NobodyAnswersError, connect
from tidemark.console.errors import CliError
from tidemark.hudi_format.storage.locate import open_storage
from tidemark.ledger_client.dead_letters import LetterFilter, LetterPage, Replayed, WholeLetter
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.kafka.confluent.client import ConfluentKafkaClient
from tidemark.stream_runtime.rpc.errors import RpcError

_NOT_NOW: Final = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED})


class Letters(Protocol):
    """Questions about a table's dead letters; all raise StreamRuntimeError."""

    def newest(self, wanted: LetterFilter, limit: int) -> LetterPage:
        """The newest `limit` that fit, and the numbers of all that do."""
        ...

    def show(self, letter_id: int) -> WholeLetter | None:
        """One letter with its content."""
        ...

    def replay(self, wanted: LetterFilter, *, dry_run: bool, again: bool, replays_max: int) -> Replayed:
        """Produces the records of all that fit again."""
        ...


class CoordinatorLetters:
    """`Letters` from the admin service."""

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
    """The loaded configuration and its table's dead letters. Raises CliError when none can be there.

    A copy of the table's folder or configuration would have the letters of the other table, and replay them
    into its topics. So the coordinator's table is compared (`connect`, which raises CliError), and without a
    coordinator that of the topics (`check_ledger`).
    """
    loaded = load_config(config_file)
    client = _coordinator(loaded, config_file)
    if client is not None:
        with client:
            yield loaded, CoordinatorLetters(client)
        return
    if not has_kafka(loaded):
        raise CliError(
            f"there are no dead letters yet: {loaded.state.path} (state.path) holds no embedded Kafka; "
            f"`tidemark run -c {config_file}` makes it"
        )
    with reachable_kafka(loaded, clock, say, "tidemark dead-letter") as config:
        kafka = ConfluentKafkaClient.from_config(config, clock=clock)
        check_ledger(config, open_storage(config.table.path), kafka, clock)
        yield config, KafkaLetters(kafka, config, clock)


def _coordinator(config: TableConfigFile, config_file: str) -> AdminClient | None:
    """None while none answers: the topic can be read without it."""
    needs_run = config.kafka.embedded or not config.services.coordinator.port
    if needs_run and read_run_file(config.state.path) is None:
        return None
    try:
        return connect(config_file)
    except NobodyAnswersError:
        return None
    except RpcError as error:
        if error.status in _NOT_NOW:
            return None
        raise
