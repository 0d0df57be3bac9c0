"""Dead letters read from Kafka while no coordinator answers, with the same results as the admin service."""

from __future__ import annotations

from functools import partial
from typing import Final

from tidemark.commit_coordinator.dead_letters.queries import DeadLetterQueries
from tidemark.commit_coordinator.dead_letters.retention import retention_now
from tidemark.config import TableConfigFile
from tidemark.ledger_client.dead_letters import (
    PAGE_MAX,
    LetterFilter,
    LetterPage,
    Replayed,
    WholeLetter,
    all_letters,
)
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.kafka.ports import KafkaClient

REPLAY_PAGE: Final = 1_000


class KafkaLetters:
    """Implements `cli.dead_letters.Letters` by reading the topic."""

    def __init__(self, client: KafkaClient, config: TableConfigFile, clock: Clock) -> None:
        retention = partial(retention_now, client, config, clock)
        self._queries = DeadLetterQueries(client, config.table.name, config.input.topics, clock, retention)

    def newest(self, wanted: LetterFilter, limit: int) -> LetterPage:
        return all_letters(lambda below: self._queries.page(wanted, min(limit, PAGE_MAX), below), limit)

    def show(self, letter_id: int) -> WholeLetter | None:
        message = self._queries.show(letter_id)
        return None if message is None else WholeLetter.of(message)

    def replay(self, wanted: LetterFilter, *, dry_run: bool, again: bool, replays_max: int) -> Replayed:
        ask = partial(
            self._queries.replay, wanted, REPLAY_PAGE, dry_run=dry_run, again=again, replays_max=replays_max
        )
        whole, page = Replayed(), ask()
        while True:
            whole.done += page.replayed
            whole.chosen += page.plan.letters
            whole.skipped += page.plan.skipped
            if page.newer is None:
                return whole
            page = ask(after=page.newer, end=page.end)
