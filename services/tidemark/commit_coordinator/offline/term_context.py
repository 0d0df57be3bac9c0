"""What the effects of a coordinator work with, for commands that take its place for a moment."""

from __future__ import annotations

from typing import Final

from tidemark.commit_coordinator.commit.context import Context, TableFacts
from tidemark.commit_coordinator.commit.decisions_log import DecisionsLog
from tidemark.config import TableConfigFile
from tidemark.hudi_format.model import InstantGenerator
from tidemark.hudi_format.publication.port import Term
from tidemark.hudi_format.table_config import read_table_config
from tidemark.hudi_format.timeline import Action
from tidemark.ledger_client.fold_reader import FoldReader
from tidemark.ledger_client.topics import TopicNames
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.ids import IdSource

_LOCK_WAIT_MS: Final = 5_000


def term_context(
    config: TableConfigFile,
    term: Term,
    clock: Clock,
    ids: IdSource,
    log: DecisionsLog,
    reader: FoldReader,
) -> Context:
    """The context of a term in which no epoch is planned."""
    table = read_table_config(term.storage)
    action = Action.DELTA_COMMIT if table.is_merge_on_read else Action.COMMIT
    topics = TopicNames(config.table.name)
    return Context(
        # No epoch is planned here, so neither a schema nor the number of shards is needed.
        table=TableFacts(config.table.name, action, topics.keyed, 0, lambda _, __: ""),
        publishing=term,
        clock=clock,
        ids=ids,
        log=log,
        instants=InstantGenerator(clock),
        fold=lambda: reader.fold,
        lock_wait_ms=_LOCK_WAIT_MS,
        hit=lambda _: None,
        index_build_ms=config.limits.index_build_ms,
    )
