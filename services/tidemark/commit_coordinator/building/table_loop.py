"""Makes what works on a table that is taken over: the coordinator of the term, and the loop around it."""

from __future__ import annotations

from typing import Final

from tidemark.commit_coordinator.building.answers import Opened
from tidemark.commit_coordinator.building.parts import Parts
from tidemark.commit_coordinator.commit.agreement import check_agreement
from tidemark.commit_coordinator.commit.attempt_effects import free_lock
from tidemark.commit_coordinator.commit.context import Context, TableFacts
from tidemark.commit_coordinator.commit.input_positions import InputPositions
from tidemark.commit_coordinator.commit.table_state import load_timelines
from tidemark.commit_coordinator.commit.timeline_look import has_surprises
from tidemark.commit_coordinator.commit.trimming import Trimmer
from tidemark.commit_coordinator.coordinator import CommitListener, Coordinator
from tidemark.commit_coordinator.domain.next_action import Limits
from tidemark.commit_coordinator.listeners import CommitFollowUp
from tidemark.commit_coordinator.loop import TableLoop
from tidemark.commit_coordinator.opening.ledger_record import LedgerRecorder
from tidemark.commit_coordinator.table_services.kinds import service_runner
from tidemark.config import TableConfigFile
from tidemark.epoch_protocol.entries import Topic
from tidemark.hudi_format.index_definitions import IndexKind
from tidemark.hudi_format.model import InstantGenerator
from tidemark.hudi_format.publication.port import Term
from tidemark.hudi_format.timeline import Action
from tidemark.ledger_client.topics import TopicNames
from tidemark.stream_runtime.kafka.ports import Admin

LOCK_WAIT_MS: Final = 5_000
RETRY_MS: Final = 500
GATHER_MS_MAX: Final = 500


def make_loop(parts: Parts, opened: Opened, term: Term) -> tuple[TableLoop, Context]:
    """The loop of ``term``, and the context that it works in.

    Checks first that table and topics agree, and frees the lock that a former coordinator left. Raises
    DivergedError when they do not agree.
    """
    config, ports = parts.config, parts.ports
    state, timelines = parts.fold().state, load_timelines(ports.storage)
    check_agreement(ports.storage, timelines, state)
    opened.schemas.resume({counted.entry.schema_id for counted in state.tagged})
    context = make_context(parts, opened, term)
    inputs = context.table.inputs
    trimmer = make_trimmer(parts.admin, parts.topics, with_keyed=not config.input.is_sharded)
    follow_up = CommitFollowUp(parts.history, parts.placement, trimmer, inputs)
    listeners: list[CommitListener] = [follow_up, parts.verification, parts.metrics]
    services = service_runner(config, context, parts.services, parts.placement)
    coordinator = Coordinator(context, planning_limits(config), parts.attempts, listeners, services)
    free_lock(context)
    if state.planned is None and has_surprises(ports.storage, timelines, state):
        coordinator.seen.rewind_due = "commits of other writers before the start"
    recorder = LedgerRecorder(term)
    return TableLoop(coordinator, context, trimmer, parts.inbox, parts.board, recorder.keep), context


def make_context(parts: Parts, opened: Opened, term: Term) -> Context:
    """The ports and facts of one term. The steps that it times go to the metrics."""
    config, ports, table = parts.config, parts.ports, opened.table
    sharded = config.input.topics[0] if config.input.is_sharded else None
    context = Context(
        table=TableFacts(
            config.table.name,
            Action.DELTA_COMMIT if table.config.is_merge_on_read else Action.COMMIT,
            sharded or parts.topics.keyed,
            table.num_shards,
            opened.schemas.united,
            InputPositions(sharded),
            config.table.accept_properties,
            config.table.index.shards if table.kind is IndexKind.PARTITIONED else 0,
        ),
        publishing=term,
        clock=ports.clock,
        ids=ports.ids,
        log=parts.log,
        instants=InstantGenerator(ports.clock),
        fold=parts.fold,
        lock_wait_ms=LOCK_WAIT_MS,
        hit=ports.failpoints.hit,
        index_build_ms=config.limits.index_build_ms,
    )
    context.steps.watch(parts.metrics.traces.step)
    return context


def make_trimmer(admin: Admin, topics: TopicNames, *, with_keyed: bool) -> Trimmer:
    """Trims the table's topics. ``with_keyed``: not if the assign stage reads the input itself."""
    roles = {Topic.DATA: topics.data, Topic.INDEX: topics.index, Topic.TOMBSTONES: topics.tombstones}
    if with_keyed:
        roles[Topic.KEYED] = topics.keyed
    return Trimmer(admin, roles, topics.ledger_partition, topics.epochs_partition)


def planning_limits(config: TableConfigFile) -> Limits:
    """When epochs are planned, and how often one is tried, by the configuration."""
    interval_ms = config.epoch.interval_ms
    return Limits(
        interval_ms,
        config.epoch.max_bytes,
        config.limits.epoch_attempts,
        min(interval_ms, GATHER_MS_MAX),
        retry_ms=RETRY_MS,
    )
