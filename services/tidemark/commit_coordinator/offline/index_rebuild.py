"""`tidemark table rebuild-index`: builds a new record index from the rows and switches to it, in a term of
its own (docs/adr/0016-rebuild-index.md).

1. Claim the table, which fences any other coordinator, and end what is open, as `recover` does.
2. Rewind what is tagged and not committed: its index rows name shards of the former index.
3. Plan; have the files built, which takes minutes and holds no lock.
4. Under the table's lock: compare the timelines with those of the plan, and switch.
5. Claim once more, with the new number of shards, and delete what the switch left.

Killed anywhere, the next coordinator, `recover`, or the command itself goes on (`settle_rebuild`). A
coordinator that starts meanwhile ends the command's term: it stops with an error, and has changed nothing, or
everything.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidemark.commit_coordinator.commit.agreement import check_agreement
from tidemark.commit_coordinator.commit.attempt_effects import rewind
from tidemark.commit_coordinator.commit.context import Context
from tidemark.commit_coordinator.commit.table_state import load_timelines
from tidemark.commit_coordinator.domain.actions import RewindLanes
from tidemark.commit_coordinator.offline.opened_ledger import opened_ledger
from tidemark.commit_coordinator.offline.recovery import end_what_is_open, require_ledger
from tidemark.commit_coordinator.offline.term_context import term_context
from tidemark.commit_coordinator.opening.ledger_identity import check_belongs, ledger_id, location_of
from tidemark.commit_coordinator.opening.table_open import check_same
from tidemark.commit_coordinator.opening.takeover import settle_rebuild, take_over
from tidemark.config import TableConfigFile
from tidemark.hudi_format.errors import FencedOutError, LockLostError, UnsupportedTableError
from tidemark.hudi_format.index_definitions import IndexKind, read_record_index_kind
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot
from tidemark.hudi_format.publication.locate import open_publication, service_files_of
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.table_config import read_table_config
from tidemark.hudi_format.table_schema import table_schema
from tidemark.hudi_format.table_services.merging.bounds import MergeBounds
from tidemark.hudi_format.table_services.operations import MergeOutcome
from tidemark.hudi_format.table_services.rebuilding.documents import ShardFile
from tidemark.hudi_format.table_services.rebuilding.numbers import Estimate, check_shards
from tidemark.hudi_format.table_services.rebuilding.planning import (
    RebuildPlan,
    check_not_overtaken,
    estimate,
    plan_rebuild,
)
from tidemark.hudi_format.table_services.rebuilding.shard_files import compact_others
from tidemark.hudi_format.table_services.rebuilding.switching import RebuildFailpoint, switch
from tidemark.hudi_format.timeline import load_timeline
from tidemark.hudi_format.timeline.avro_records import encode_commit_metadata
from tidemark.hudi_format.validation import check_servable
from tidemark.ledger_client.errors import SupersededError
from tidemark.ledger_client.topics import TopicNames
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.ids import IdSource
from tidemark.stream_runtime.kafka.ports import KafkaClient

# Service actions are numbered from 1: a term's folder for the files of a rebuild meets none of theirs.
_SERVICE: Final = 0
_LOCK_WAIT_MS: Final = 30_000
_OTHERS_MEMORY: Final = 256 << 20


@dataclass(frozen=True)
class Before:
    """What a rebuild would begin from. ``lanes``: the partitions of the topics, 0 without topics."""

    shards: int
    lanes: int
    estimate: Estimate


@dataclass(frozen=True)
class BuildRequest:
    """What the job has to build: the plan, the table's schema in Avro, and the token of its files."""

    plan: RebuildPlan
    schema: str
    token: str


@dataclass(frozen=True)
class RebuiltIndex:
    """The index that is there now. ``former``: shards of the one before."""

    shards: int
    former: int
    entries: int
    bytes: int
    instant: str


Build = Callable[[BuildRequest], Sequence[ShardFile]]


def look_before(config: TableConfigFile, kafka: KafkaClient, storage: Storage, shards: int) -> Before:
    """Makes the checks of a rebuild and estimates it; changes nothing.

    Raises UnsupportedTableError for a table, an index beside it, or a number of shards that is not served,
    TableMismatchError, MissingTopicError.
    """
    check_same(config, check_servable(storage, None, config.table.accept_properties))
    if read_record_index_kind(storage) is IndexKind.PARTITIONED:
        raise UnsupportedTableError(
            "the record index is partitioned: each data partition has shards of its own, and this command "
            "makes the shards of a global index",
            "`table.index.shards` is for partitions that are new; to give others another number stop all "
            "services, and let Hudi on Spark drop the record index and build it anew "
            '(docs/partitioned-index.md, "More shards")',
        )
    topics = TopicNames(config.table.name)
    require_ledger(kafka, topics)
    admin = kafka.admin()
    try:
        lanes = admin.partitions(topics.tombstones) or config.table.index.lanes
    finally:
        admin.close()
    snapshot = MetadataTableSnapshot.load(storage)
    check_shards(snapshot.num_shards, shards, lanes)
    found = estimate(storage, snapshot)
    return Before(snapshot.num_shards, lanes, found)


def rebuild_index(
    config: TableConfigFile,
    kafka: KafkaClient,
    storage: Storage,
    clock: Clock,
    ids: IdSource,
    shards: int,
    build: Build,
    say: Callable[[str], None],
    hit: Callable[[RebuildFailpoint], None],
) -> RebuiltIndex:
    """Rebuilds the index with so many ``shards``, which `look_before` has permitted. Repeatable.

    Raises what `recover` raises, SupersededError (a coordinator started meanwhile), TimelineConflictError
    (another writer wrote, or is about to), and what ``build`` raises.
    """
    with opened_ledger(config, kafka, storage, clock) as (reader, log):
        reader.catch_up()
        ledger = ledger_id(storage, ids)
        check_belongs(reader.fold.state, config.table.name, ledger, location_of(storage))
        publication = open_publication(storage, clock, ids)
        # A switch that a killed command left is claimed first: another one may only begin behind its claim.
        number = MetadataTableSnapshot.load(storage).num_shards
        term = take_over(publication, log, lambda: reader.fold, f"rebuild-{ids.uuid()}", ledger, number)
        check_agreement(storage, load_timelines(storage), reader.fold.state)
        settle_rebuild(term, reader.fold.state.shards)
        context = term_context(config, term, clock, ids, log, reader)
        _make_ready(context, config, say)
        with _superseded_first(context):
            plan, others, written = _built(context, storage, shards, build, say)
            _switch(context, plan, others, written, hit)
        say(f"switched: the record index has {shards} shards")
        found = MetadataTableSnapshot.load(storage).num_shards
        owner = f"rebuilt-{ids.uuid()}"
        last = take_over(publication, log, lambda: reader.fold, owner, ledger, found)
        settle_rebuild(last, reader.fold.state.shards)
        last.close_service(_SERVICE)
        return RebuiltIndex(
            found,
            plan.former,
            sum(file.entries for file in written),
            sum(file.size for file in written),
            plan.instant,
        )


@contextmanager
def _superseded_first(context: Context) -> Iterator[None]:
    """A coordinator that started in between is the reason of whatever failed: its name is said instead."""
    try:
        yield
    except Exception as error:
        context.log.catch_up()
        if context.fold().state.coordinator_term != context.term:
            raise SupersededError(
                "a coordinator started while the index was rebuilt, and goes on with the index that is there "
                "(`tidemark table describe` says its shards). If it is the former one: stop all services of "
                "the table, then run the command again"
            ) from error
        raise


def _make_ready(context: Context, config: TableConfigFile, say: Callable[[str], None]) -> None:
    done = end_what_is_open(context, config)
    if done.finished is not None or done.voided or done.services:
        say("ended what a coordinator had left open")
    if context.fold().state.tagged:
        say("what is tagged and not committed will be tagged anew")
        rewind(context, RewindLanes("the record index is rebuilt"))


def _built(
    context: Context, storage: Storage, shards: int, build: Build, say: Callable[[str], None]
) -> tuple[RebuildPlan, list[MergeOutcome], Sequence[ShardFile]]:
    term = context.publishing
    plan = plan_rebuild(storage, shards, context.instants)
    config = read_table_config(storage)
    schema = table_schema(storage, config, load_timeline(storage))
    token = term.open_service(_SERVICE)
    with tempfile.TemporaryDirectory(prefix="tidemark-rebuild-") as folder:
        bounds = MergeBounds(_OTHERS_MEMORY, Path(folder))
        of_action = service_files_of(storage, token)
        others = compact_others(storage, plan.others(), plan.instant, of_action, bounds)
    say(f"building {shards} shards from {len(plan.slices)} file groups")
    written = build(BuildRequest(plan, "" if schema is None else schema.avro_json, token))
    return plan, others, written


def _switch(
    context: Context,
    plan: RebuildPlan,
    others: Sequence[MergeOutcome],
    written: Sequence[ShardFile],
    hit: Callable[[RebuildFailpoint], None],
) -> None:
    term = context.publishing
    term.lock.acquire(_LOCK_WAIT_MS)
    try:
        check_not_overtaken(plan, term.storage)
        tickets = [*(file.ticket for file in others if file.ticket), *(file.ticket for file in written)]
        completion = context.instants.next()
        commit = encode_commit_metadata(plan.commit(written, others))
        switch(term, plan.rebuild(), tickets, completion, commit, hit)
    finally:
        # Whoever ended this term has the lock by now. Otherwise it is kept until clocks agree.
        with suppress(LockLostError, FencedOutError):
            term.lock.release(context.instants.taken_ms)
            term.lock.free()
